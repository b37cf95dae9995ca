"""Sampling fields of a request to one frozen, checked SamplingParams.

The fields come from HTTP bodies, but any object with these attributes will do. Every refusal is an
InvalidRequest that names the field, what was given and what is allowed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from octavo.engine.sampling import SamplingParams
from octavo.errors import ContextTooLong, InvalidRequest
from octavo.text.tokenizer import Tokenizer
from octavo.types import ModelLimits

GREEDY_BELOW = 1e-5
LOWEST_TEMPERATURE = 0.01  # a smaller one that is not greedy is raised to this
BIAS_LIMIT = 100.0
MAX_STOPS = 128
MAX_STOP_CHARS = 65536
MAX_BAD_WORDS = 1024
MAX_BAD_WORD_CHARS = 65536


class SamplingFields(Protocol):
    """What is read here; None: not given."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    n: int | None
    max_tokens: int | None
    min_tokens: int | None
    stop: str | list[str] | None
    stop_token_ids: list[int] | None
    ignore_eos: bool | None
    include_stop_str_in_output: bool | None
    skip_special_tokens: bool | None
    logit_bias: dict[str, Any] | None
    allowed_token_ids: list[int] | None
    bad_words: list[str] | None
    prompt_logprobs: int | None
    stream: bool | None
    stream_options: Any
    stream_interval: int | None
    priority: int | None
    truncate_prompt_tokens: int | None
    best_of: int | None


class Bound(NamedTuple):
    """The allowed range of a number, ends included unless `open_low`."""

    low: float
    high: float = math.inf
    open_low: bool = False

    def holds(self, value: float) -> bool:
        """Is the value inside?"""
        above = value > self.low if self.open_low else value >= self.low
        return above and value <= self.high and value != math.inf

    def words(self) -> str:
        """The range for people."""
        low = f"more than {self.low}" if self.open_low else f"at least {self.low}"
        return low if math.isinf(self.high) else f"{low} and at most {self.high}"


BOUNDS: Mapping[str, Bound] = {
    "temperature": Bound(0, 2),
    "top_p": Bound(0, 1, open_low=True),
    "top_k": Bound(-1),
    "min_p": Bound(0, 1),
    "repetition_penalty": Bound(0, open_low=True),
    "presence_penalty": Bound(-2, 2),
    "frequency_penalty": Bound(-2, 2),
    "seed": Bound(-(2**63), 2**63 - 1),
    "n": Bound(1, 16384),
    "best_of": Bound(1, 16384),
    "max_tokens": Bound(-1),
    "max_completion_tokens": Bound(-1),
    "min_tokens": Bound(0),
    "stream_interval": Bound(1),
    "truncate_prompt_tokens": Bound(-1),
    "logprobs": Bound(-1),
    "top_logprobs": Bound(-1),
    "prompt_logprobs": Bound(-1),
    "priority": Bound(-(2**63), 2**63 - 1),
}

# Known fields that nothing honours yet -> the values that ask for nothing.
NOT_BUILT: Mapping[str, tuple[object, ...]] = {
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json_object": (False,),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),  # of a beam search
    "include_reasoning": (True,),
    "logprob_token_ids": (),
    "kv_transfer_params": (),
    "ec_transfer_params": (),
    "vllm_xargs": (),
    "repetition_detection": (),
    "thinking_token_budget": (),
    "suffix": (),
    "prompt_embeds": (),
    "mm_processor_kwargs": (),
    "media_io_kwargs": (),
    "modalities": (["text"],),
    "audio": (),
    "return_prompt_text": (False,),
}


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """What the fields are checked against and completed from, for one served model.

    defaults: sampling values of the model's generation_config.json. max_new_tokens: ceiling of
    every answer, 0: none. priorities: does the scheduler look at `priority`?
    """

    limits: ModelLimits
    eos_token_ids: frozenset[int] = frozenset()
    defaults: Mapping[str, float] = field(default_factory=dict)
    max_new_tokens: int = 0
    priorities: bool = False


def check_fields(fields: SamplingFields, rules: SamplingRules) -> None:
    """Ranges and combinations that need no tokenizer."""
    for name, neutral in NOT_BUILT.items():
        value = getattr(fields, name, None)
        if value is not None and value not in neutral:
            raise InvalidRequest(f"{name} is not supported yet; leave it out", param=name)
    for name, bound in BOUNDS.items():
        value = getattr(fields, name, None)
        if value is not None and not isinstance(value, bool) and not bound.holds(value):
            raise InvalidRequest(f"{name} is {value}; allowed: {bound.words()}", param=name)
    if fields.stream_options is not None and not fields.stream:
        raise InvalidRequest(
            "stream_options is given, but stream is not true; set stream or leave it out",
            param="stream_options",
        )
    if fields.stream and fields.prompt_logprobs is not None:
        raise InvalidRequest(
            "prompt_logprobs cannot be streamed; leave out stream", param="prompt_logprobs"
        )
    if fields.priority and not rules.priorities:
        raise InvalidRequest(
            f"priority is {fields.priority}, but the server was not started with "
            "--scheduling-policy priority; leave it out",
            param="priority",
        )
    _check_counts(fields, rules)


def _check_counts(fields: SamplingFields, rules: SamplingRules) -> None:
    n = fields.n or 1
    if fields.best_of is not None and fields.best_of != n:
        why = f"less than n {n}" if fields.best_of < n else "more than n: not supported yet"
        raise InvalidRequest(f"best_of is {fields.best_of}, {why}", param="best_of")
    if n > 1 and _temperature(fields, rules) == 0:
        raise InvalidRequest(
            f"n is {n}, but with temperature 0 all choices are equal; ask for 1, or raise it",
            param="n",
        )


def build_params(
    fields: SamplingFields,
    rules: SamplingRules,
    tokenizer: Tokenizer,
    *,
    max_tokens: int | None,
    logprobs: int | None = None,
    prompt_logprobs: int | None = None,
) -> SamplingParams:
    """The fields as engine parameters; `max_tokens` still has to be fitted to each prompt.

    max_tokens: None: as many as fit. Slow where there are bad words: they are tokenised.
    """
    limits = rules.limits
    stop_ids = _token_ids("stop_token_ids", fields.stop_token_ids or [], limits)
    temperature = _temperature(fields, rules)
    greedy = temperature == 0
    limit = max_tokens
    if rules.max_new_tokens:
        limit = rules.max_new_tokens if limit is None else min(limit, rules.max_new_tokens)
    min_tokens = fields.min_tokens or 0
    if limit is not None and min_tokens > limit:
        raise InvalidRequest(
            f"min_tokens is {min_tokens}, more than max_tokens {limit}", param="min_tokens"
        )
    masked = rules.eos_token_ids | frozenset(stop_ids)
    top_k = max(int(_value(fields, rules, "top_k", 0)), 0)
    return SamplingParams(
        max_tokens=limits.max_model_len if limit is None else min(limit, limits.max_model_len),
        temperature=temperature,
        top_p=1.0 if greedy else _value(fields, rules, "top_p", 1.0),
        top_k=0 if greedy or top_k >= limits.vocab_size else top_k,
        min_p=0.0 if greedy else _value(fields, rules, "min_p", 0.0),
        seed=None if fields.seed == -1 else fields.seed,
        repetition_penalty=_value(fields, rules, "repetition_penalty", 1.0),
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        stop=_stops(fields.stop),
        include_stop_str_in_output=bool(fields.include_stop_str_in_output),
        stop_token_ids=frozenset(stop_ids),
        eos_token_ids=frozenset() if fields.ignore_eos else rules.eos_token_ids,
        masked_until_min_tokens=masked,
        min_tokens=min(min_tokens, limits.max_model_len),
        skip_special_tokens=fields.skip_special_tokens is not False,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        logit_bias=_logit_bias(fields.logit_bias or {}, limits),
        allowed_token_ids=_allowed(
            fields.allowed_token_ids, limits, masked if min_tokens else frozenset()
        ),
        bad_words=_bad_words(fields.bad_words or [], tokenizer),
        stream_interval=fields.stream_interval or 1,
    )


def fit_to_prompt(
    params: SamplingParams, prompt_tokens: int, limits: ModelLimits, param: str = "prompt"
) -> SamplingParams:
    """Lower `max_tokens` to the room that the prompt leaves. Raises ContextTooLong on `param`."""
    room = limits.max_model_len - prompt_tokens
    if room < 1:
        raise ContextTooLong(
            f"the prompt has {prompt_tokens} tokens and the model's length is "
            f"{limits.max_model_len}, prompt and answer together; shorten the prompt",
            param=param,
        )
    return params if params.max_tokens <= room else replace(params, max_tokens=room)


def num_alternatives(name: str, value: int | None, limits: ModelLimits) -> int | None:
    """How many alternatives are asked for: -1 is the whole vocabulary, None none at all."""
    if value is None:
        return None
    wanted = limits.vocab_size if value == -1 else value
    if wanted > limits.max_logprobs:
        shown = f"-1, the whole vocabulary of {wanted} tokens" if value == -1 else str(value)
        raise InvalidRequest(
            f"{name} is {shown}; allowed: at most {limits.max_logprobs} (--max-logprobs)",
            param=name,
        )
    return wanted


def _value(fields: SamplingFields, rules: SamplingRules, name: str, default: float) -> Any:
    given = getattr(fields, name)
    return rules.defaults.get(name, default) if given is None else given


def _temperature(fields: SamplingFields, rules: SamplingRules) -> float:
    given = float(_value(fields, rules, "temperature", 1.0))
    return 0.0 if given < GREEDY_BELOW else max(given, LOWEST_TEMPERATURE)


def _stops(given: str | list[str] | None) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given or []
    if len(stops) > MAX_STOPS or sum(map(len, stops)) > MAX_STOP_CHARS:
        raise InvalidRequest(
            f"stop has {len(stops)} texts of {sum(map(len, stops))} characters; allowed: "
            f"{MAX_STOPS} texts of {MAX_STOP_CHARS} characters together",
            param="stop",
        )
    if "" in stops:
        raise InvalidRequest("stop holds an empty text, which would stop at once", param="stop")
    return tuple(dict.fromkeys(stops))


def _token_ids(name: str, ids: list[int], limits: ModelLimits) -> list[int]:
    for token_id in ids:
        if not 0 <= token_id < limits.vocab_size:
            raise InvalidRequest(
                f"{name} has token id {token_id}; allowed: 0 to {limits.vocab_size - 1}",
                param=name,
            )
    return ids


def _allowed(
    ids: list[int] | None, limits: ModelLimits, masked: frozenset[int]
) -> tuple[int, ...] | None:
    """masked: ids that may not be drawn at first."""
    if ids is None:
        return None
    if not ids:
        raise InvalidRequest(
            "allowed_token_ids is empty: no token could be drawn; leave it out",
            param="allowed_token_ids",
        )
    if masked.issuperset(ids):
        raise InvalidRequest(
            "allowed_token_ids has only ids that end the answer, which min_tokens forbids at "
            "first; allow another id, or leave out min_tokens",
            param="allowed_token_ids",
        )
    return tuple(sorted(set(_token_ids("allowed_token_ids", ids, limits))))


def _logit_bias(given: dict[str, Any], limits: ModelLimits) -> tuple[tuple[int, float], ...]:
    bias = {}
    for key, value in given.items():
        # isdecimal also takes digits of other scripts, hence isascii.
        token_id = int(key) if key.isascii() and key.isdecimal() and len(key) < 20 else -1
        if not 0 <= token_id < limits.vocab_size:
            raise InvalidRequest(
                f"logit_bias has the key {key[:40]!r}; allowed: token ids from 0 to "
                f"{limits.vocab_size - 1}",
                param="logit_bias",
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidRequest(
                f"logit_bias.{key} must be a number; allowed: -100 to 100", param="logit_bias"
            )
        bias[token_id] = min(max(value, -BIAS_LIMIT), BIAS_LIMIT)
    return tuple(bias.items())


def _bad_words(words: list[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as the token sequences that spell it, with and without a leading space."""
    size = sum(map(len, words))
    if len(words) > MAX_BAD_WORDS or size > MAX_BAD_WORD_CHARS:
        raise InvalidRequest(
            f"bad_words has {len(words)} words of {size} characters; allowed: {MAX_BAD_WORDS} "
            f"words of {MAX_BAD_WORD_CHARS} characters together",
            param="bad_words",
        )
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = word.lstrip(" ")
        if not bare:
            raise InvalidRequest("bad_words has an empty word", param="bad_words")
        for text in (bare, " " + bare):
            sequences[tuple(tokenizer.encode(text, add_special_tokens=False))] = None
    return tuple(sequences)
