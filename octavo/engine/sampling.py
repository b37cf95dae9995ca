"""SamplingParams: how a request's tokens are chosen and when it ends. Frozen and already checked."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Checked at the edge (`serving/params.py`); nobody checks again.

    Greedy is temperature 0. `seed` None: the engine draws one. `max_tokens` is always set (the room
    that is left, when the client set none); 0 only scores the prompt. `stop` strings are watched by
    `serving/choice.py`, not by the engine. `logprobs` and `prompt_logprobs`: None, or the number of
    alternatives (0: the token's own only).
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    eos_token_ids: frozenset[int] = frozenset()  # of the model; empty with ignore_eos
    masked_until_min_tokens: frozenset[int] = frozenset()  # EOS and stop ids, ignore_eos or not
    min_tokens: int = 0
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: dict[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()  # banned token sequences
    stream_interval: int = 1
