"""A small byte-level BPE vocabulary with ChatML specials, as hub files and as GGUF metadata."""

from typing import Any

from octavo.text.gguf_tokenizer import TokenType
from octavo.text.spelling import byte_letters

MERGES: tuple[tuple[str, str], ...] = (
    *(("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("in", "g"), ("Ġ", "a"), ("e", "r")),
    *(("o", "n"), ("Ġ", "s"), ("r", "e"), ("Ġa", "n"), ("Ġan", "d"), ("l", "l"), ("o", "u")),
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS, EOS = "<|im_start|>", "<|im_end|>"

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def ordinary_tokens() -> list[str]:
    """Bytes, then merged pairs; the specials follow them."""
    return [*byte_letters(), *("".join(pair) for pair in MERGES)]


VOCAB_SIZE = 256 + len(MERGES) + len(SPECIALS)


def token_id(token: str) -> int:
    """The id of a token."""
    return [*ordinary_tokens(), *SPECIALS].index(token)


def folder_files(template: str | None) -> dict[str, Any]:
    """File name -> JSON value: tokenizer.json and tokenizer_config.json."""
    first_special = 256 + len(MERGES)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": first_special + index, "content": text, "special": True, **flags}
        for index, text in enumerate(SPECIALS)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    digits = {"type": "Digits", "individual_digits": True}
    split = {"type": "Sequence", "pretokenizers": [digits, byte_level | {"use_regex": True}]}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(ordinary_tokens())},
        "merges": [list(pair) for pair in MERGES],
    }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": split,
        "post_processor": None,
        "decoder": byte_level | {"use_regex": True},
        "model": model,
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": EOS,
        "clean_up_tokenization_spaces": False,
    }
    if template is not None:
        config["chat_template"] = template
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}


def gguf_metadata(template: str | None, rows: int) -> dict[str, Any]:
    """`tokenizer.*` pairs for `write_gguf`; `rows` above VOCAB_SIZE are named as unused tokens."""
    unused = [f"[PAD{index}]" for index in range(VOCAB_SIZE, rows)]
    ordinary = ordinary_tokens()
    types = [TokenType.NORMAL] * len(ordinary) + [TokenType.CONTROL] * len(SPECIALS)
    types += [TokenType.UNUSED] * len(unused)
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*ordinary, *SPECIALS, *unused],
        "tokenizer.ggml.token_type": [int(kind) for kind in types],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
        "tokenizer.ggml.bos_token_id": token_id(BOS),
        "tokenizer.ggml.eos_token_id": token_id(EOS),
        "tokenizer.ggml.padding_token_id": token_id(EOS),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }
    if template is not None:
        metadata["tokenizer.chat_template"] = template
    return metadata
