"""Fields to SamplingParams: defaults, bounds, temperature rules, ids, lengths."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from octavo.api.schemas.completions import CompletionBody
from octavo.engine.sampling import SamplingParams
from octavo.errors import ContextTooLong, InvalidRequest
from octavo.serving.loading import sampling_defaults
from octavo.serving.params import (
    BOUNDS,
    SamplingRules,
    build_params,
    check_fields,
    fit_to_prompt,
    num_alternatives,
)
from octavo.serving.prompts import PromptReader, truncate
from octavo.testing.scripted.script import Reply, Script
from octavo.testing.scripted.tokenizer import ScriptedTokenizer
from octavo.types import ModelLimits

LIMITS = ModelLimits(max_model_len=100, vocab_size=257)
EOS = 256
TOKENIZER = ScriptedTokenizer(Script([Reply([])]))
RULES = SamplingRules(LIMITS, frozenset({EOS}))


def fields(**given: Any) -> CompletionBody:
    return CompletionBody.model_validate({"prompt": "a"} | given)


def params(
    rules: SamplingRules = RULES, max_tokens: int | None = 5, **given: Any
) -> SamplingParams:
    body = fields(**given)
    check_fields(body, rules)
    return build_params(body, rules, TOKENIZER, max_tokens=max_tokens)


def refused(param: str, rules: SamplingRules = RULES, **given: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        params(rules, **given)
    assert caught.value.param == param
    return str(caught.value)


def test_defaults():
    assert params() == SamplingParams(
        max_tokens=5, eos_token_ids=frozenset({EOS}), masked_until_min_tokens=frozenset({EOS})
    )


@pytest.mark.parametrize(
    ("given", "used"), [(0, 0), (1e-6, 0), (0.001, 0.01), (0.01, 0.01), (0.7, 0.7), (2, 2)]
)
def test_temperature(given, used):
    assert params(temperature=given).temperature == used


def test_greedy_needs_no_cuts():
    got = params(temperature=0, top_p=0.5, top_k=3, min_p=0.2)
    assert (got.top_p, got.top_k, got.min_p) == (1, 0, 0)


@pytest.mark.parametrize(("given", "used"), [(-1, 0), (0, 0), (3, 3), (257, 0), (10**30, 0)])
def test_top_k(given, used):
    assert params(top_k=given).top_k == used


def test_defaults_of_the_model_are_below_the_clients():
    rules = SamplingRules(LIMITS, defaults={"temperature": 0.5, "top_k": 7})
    assert (params(rules).temperature, params(rules).top_k) == (0.5, 7)
    assert params(rules, temperature=1.5).temperature == 1.5
    assert sampling_defaults(
        {"temperature": 9, "top_p": 0.9, "top_k": True, "do_sample": True}
    ) == {"top_p": 0.9}


@pytest.mark.parametrize(
    "name", sorted(set(BOUNDS) - {"max_tokens", "max_completion_tokens", "top_logprobs"})
)
def test_bounds(name):
    bound = BOUNDS[name]
    wrong = [bound.low if bound.open_low else bound.low - 1]
    wrong += [] if math.isinf(bound.high) else [bound.high * 2 + 1]
    for value in wrong:
        message = refused(name, **{name: int(value) if float(value).is_integer() else value})
        assert name in message
        assert bound.words() in message


def test_seeds():
    assert params(seed=-1).seed is None
    assert params(seed=2**63 - 1).seed == 2**63 - 1
    assert params(seed=-5).seed == -5


def test_stop_ids_end_and_are_masked_before_min_tokens():
    got = params(stop_token_ids=[65, 66], min_tokens=2, ignore_eos=True)
    assert got.stop_token_ids == {65, 66}
    assert got.eos_token_ids == frozenset()
    assert got.masked_until_min_tokens == {65, 66, EOS}
    refused("stop_token_ids", stop_token_ids=[257])


def test_bias_is_clamped():
    assert dict(params(logit_bias={"5": 1000, "6": -200, "7": 0.5}).logit_bias) == {
        5: 100,
        6: -100,
        7: 0.5,
    }
    for key in ("-1", "abc", "1.5", "257", "", "9" * 5000, "٣"):
        refused("logit_bias", logit_bias={key: 1})
    for value in ("x", None, True, [1]):
        refused("logit_bias", logit_bias={"5": value})


def test_bad_words_are_bounded_together():
    assert len(params(bad_words=["a" * 40000, "b" * 25536]).bad_words) == 4
    assert "65537 characters" in refused("bad_words", bad_words=["a" * 40000, "b" * 25537])


def test_bad_words_with_and_without_a_space():
    assert params(bad_words=["ab", " ab"]).bad_words == ((97, 98), (32, 97, 98))


def test_limits_of_tokens():
    assert params(max_tokens=None).max_tokens == 100, "as many as fit"
    assert params(max_tokens=10**12).max_tokens == 100
    ceiling = SamplingRules(LIMITS, max_new_tokens=3)
    assert params(ceiling, max_tokens=None).max_tokens == 3
    assert params(ceiling, max_tokens=2).max_tokens == 2
    refused("min_tokens", min_tokens=6)
    fitted = fit_to_prompt(params(max_tokens=None), 60, LIMITS)
    assert fitted.max_tokens == 40
    for prompt in (100, 101):
        with pytest.raises(ContextTooLong, match=f"{prompt} tokens .* 100"):
            fit_to_prompt(params(), prompt, LIMITS)


def test_combinations():
    refused("n", n=2, temperature=0)
    assert "less than n 3" in refused("best_of", n=3, best_of=2)
    refused("stream_options", stream_options={})
    refused("prompt_logprobs", stream=True, prompt_logprobs=0)
    refused("priority", priority=1)
    assert params(SamplingRules(LIMITS, priorities=True), priority=1)


def test_alternatives():
    assert num_alternatives("logprobs", None, LIMITS) is None
    assert num_alternatives("logprobs", 20, LIMITS) == 20
    assert num_alternatives("logprobs", -1, ModelLimits(9, 257, max_logprobs=300)) == 257
    with pytest.raises(InvalidRequest, match=r"whole vocabulary of 257 tokens; .* at most 20"):
        num_alternatives("logprobs", -1, LIMITS)
    with pytest.raises(InvalidRequest, match=r"logprobs is 21; .* at most 20"):
        num_alternatives("logprobs", 21, LIMITS)


def test_some_allowed_token_must_be_free_to_be_drawn():
    ends = {"stop_token_ids": [65], "allowed_token_ids": [65, EOS]}
    message = refused("allowed_token_ids", min_tokens=1, **ends)
    assert "min_tokens" in message
    assert params(**ends).allowed_token_ids == (65, EOS), "without min_tokens they end it at once"
    free = ends | {"allowed_token_ids": [65, 66]}
    assert params(min_tokens=1, **free).allowed_token_ids == (65, 66)


@pytest.mark.parametrize(
    ("name", "neutral", "wrong"),
    [("length_penalty", 1.0, 0.5), ("use_beam_search", False, True), ("best_of", 1, 2)],
)
def test_what_is_not_built_is_refused_unless_it_asks_for_nothing(name, neutral, wrong):
    assert params(**{name: neutral}) == params()
    refused(name, **{name: wrong})


# ------------------------------------------------------------------------------------- prompts


def test_a_text_that_cannot_fit_is_not_tokenised():
    def encode(text: str, add_special_tokens: bool = True) -> list[int]:
        raise AssertionError("tokenised")

    slow = SimpleNamespace(encode=encode, max_token_bytes=7)
    reader = PromptReader(slow, LIMITS)  # type: ignore[arg-type]
    with pytest.raises(ContextTooLong, match=r"701 bytes and so at least 101 tokens.*is 100"):
        reader.read_all("x" * 701)
    with pytest.raises(AssertionError, match="tokenised"):
        reader.read_all("x" * 700)
    with pytest.raises(InvalidRequest, match="2 characters; allowed: 1"):
        PromptReader(slow, LIMITS, max_chars=1).encode("xx")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [[], "", [[]], [""], [[1], []], [257], [[-1]]])
def test_prompts_without_meaning(given):
    with pytest.raises(InvalidRequest) as caught:
        PromptReader(TOKENIZER, LIMITS).read_all(given)
    assert caught.value.param == "prompt"


def test_number_of_prompts():
    with pytest.raises(InvalidRequest, match="list of 3; allowed: 2"):
        PromptReader(TOKENIZER, LIMITS, max_prompts=2).read_all(["a"] * 3)


@pytest.mark.parametrize(
    ("keep", "side", "left"),
    [(None, None, 120), (3, None, 3), (3, "right", 3), (-1, None, 99), (500, None, 120)],
)
def test_truncation(keep, side, left):
    ids = list(range(120))
    got = truncate(ids, keep, side, LIMITS)
    assert got == (ids[:left] if side == "right" else ids[-left:])
