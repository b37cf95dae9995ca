"""SmolLM2's greedy answers against transformers on the same dequantised weights."""

import asyncio

import numpy as np
import pytest

from octavo.backends.reference import ReferenceBackend
from octavo.engine.client import AsyncEngine
from octavo.engine.sampling import SamplingParams
from octavo.engine.settings import EngineSettings
from octavo.models.registry import build
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.template import ChatTemplate, find_template
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.quickstart import smollm2_path

pytestmark = [pytest.mark.parity, pytest.mark.slow, pytest.mark.timeout(1800)]

MAX_TOKENS = 64
NEEDED = 11  # of the 12: sums in another order may tip a near tie

QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain in two sentences why the sky is blue.",
    "What is 17 + 25? Show how you get there.",
    "Write a Python function that reverses a string.",
    "Name three mammals that live in the ocean, as a numbered list.",
    "Übersetze ins Englische: Der Hund schläft unter dem Tisch.",
    "Who wrote the play 'Romeo and Juliet', and when?",
    'Answer with JSON only: {"name": ..., "age": ...} for a person of your choice.',
    "I feel tired in the afternoons. What could help?",
    "Summarise: The river rose for three days, the bridge was closed, and the town waited.",
    "Tell me a joke about a computer 🙂",
)


@pytest.fixture(scope="module")
def checkpoint():
    with open_checkpoint(smollm2_path(progress=False)) as checkpoint:
        yield checkpoint


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return tokenizer_from_gguf(checkpoint.metadata)


@pytest.fixture(scope="module")
def prompts(checkpoint, tokenizer):
    """Token ids of each question as the model's template writes it."""
    template = ChatTemplate(
        find_template(checkpoint.path, metadata=checkpoint.metadata),
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        special_tokens=tokenizer.special_tokens,
    )
    assert not template.is_fallback
    return [
        tokenizer.encode_rendered(template.render([{"role": "user", "content": question}]))
        for question in QUESTIONS
    ]


@pytest.fixture(scope="module")
def their_model(oracle, checkpoint):
    """transformers' model, set up from the file's metadata and not from our reading of it."""
    meta = checkpoint.metadata
    config = oracle.transformers.LlamaConfig(
        vocab_size=len(meta["tokenizer.ggml.tokens"]),
        hidden_size=meta["llama.embedding_length"],
        intermediate_size=meta["llama.feed_forward_length"],
        num_hidden_layers=meta["llama.block_count"],
        num_attention_heads=meta["llama.attention.head_count"],
        num_key_value_heads=meta["llama.attention.head_count_kv"],
        max_position_embeddings=meta["llama.context_length"],
        rms_norm_eps=meta["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": meta["llama.rope.freq_base"]},
        tie_word_embeddings="lm_head.weight" not in checkpoint.tensors,
        bos_token_id=meta["tokenizer.ggml.bos_token_id"],
        eos_token_id=meta["tokenizer.ggml.eos_token_id"],
        attn_implementation="eager",
    )
    model = oracle.transformers.LlamaForCausalLM(config).to(oracle.torch.float32).eval()
    state = {
        name: oracle.torch.from_numpy(np.array(tensor.float32()))
        for name, tensor in checkpoint.tensors.items()
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= ({"lm_head.weight"} if config.tie_word_embeddings else set())
    model.tie_weights()
    return model


@pytest.fixture(scope="module")
def our_answers(checkpoint, tokenizer, prompts):
    """Token ids of every answer, EOS included; all questions run together."""
    model = build(checkpoint)
    backend = ReferenceBackend(model.program, checkpoint, vocab_size=model.config.vocab_size)
    settings = EngineSettings(
        max_model_len=512,
        block_size=32,
        num_blocks=len(prompts) * 512 // 32,
        max_num_seqs=len(prompts),
        max_num_batched_tokens=512,
    )
    params = SamplingParams(
        max_tokens=MAX_TOKENS, temperature=0, eos_token_ids=frozenset({tokenizer.eos_token_id})
    )

    async def answer(stream):
        return [token_id async for delta in stream for token_id in delta.token_ids]

    async def run():
        engine = AsyncEngine(backend, settings)
        engine.start()
        try:
            streams = [
                engine.submit(str(number), prompt, params) for number, prompt in enumerate(prompts)
            ]
            return await asyncio.gather(*map(answer, streams))
        finally:
            assert await engine.stop()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def their_answers(oracle, their_model, tokenizer, prompts):
    """Token ids of transformers' greedy answers, EOS included; one batch, padded on the left."""
    torch, eos = oracle.torch, tokenizer.eos_token_id
    width = max(map(len, prompts))
    with torch.no_grad():
        rows = their_model.generate(
            torch.tensor([[eos] * (width - len(prompt)) + prompt for prompt in prompts]),
            attention_mask=torch.tensor(
                [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
            ),
            do_sample=False,
            max_new_tokens=MAX_TOKENS,
            eos_token_id=eos,
            pad_token_id=eos,
        )[:, width:].tolist()
    # What follows an EOS is padding.
    return [row[: row.index(eos) + 1] if eos in row else row for row in rows]


def first_difference(oracle, model, prompt, ours, theirs):
    """In words, with what transformers thinks of its two best tokens there."""
    place = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    scores = oracle.scores(model, prompt + theirs[:place])[-1]
    second, best = np.argsort(scores)[-2:]
    return (
        f"token {place}: ours {ours[place : place + 1]}, theirs {theirs[place : place + 1]}; "
        f"transformers has {best} before {second} by {scores[best] - scores[second]:.2g}"
    )


@pytest.mark.filterwarnings("default")  # what transformers warns of is not ours to mend
def test_greedy_answers(
    oracle, their_model, tokenizer, prompts, our_answers, their_answers, capsys
):
    report, agreed = [], 0
    for question, prompt, ours, theirs in zip(
        QUESTIONS, prompts, our_answers, their_answers, strict=True
    ):
        agreed += ours == theirs
        told = tokenizer.decode(ours, skip_special_tokens=True)
        report.append(f"{'same' if ours == theirs else 'DIFFERENT'}: {question} -> {told!r}")
        if ours != theirs:
            report.append(first_difference(oracle, their_model, prompt, ours, theirs))
    report.append(f"{agreed} of {len(QUESTIONS)} answers agree over {MAX_TOKENS} tokens")
    with capsys.disabled():
        print("", *report, sep="\n")
    assert agreed >= NEEDED, "\n".join(report)
