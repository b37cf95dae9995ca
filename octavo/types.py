"""Small values that several rooms share. Nothing here does work."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

FinishReason = Literal["stop", "length", "abort", "error"]


class TokenLogprob(NamedTuple):
    """One token with its natural-log probability and its rank (1 = most likely)."""

    token_id: int
    logprob: float
    rank: int


class PositionLogprobs(NamedTuple):
    """The token at one position, and the alternatives asked for, most likely first.

    `chosen` is not repeated in front of `top`, but is one of `top` when it is likely enough.
    """

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a request is checked against.

    max_model_len: tokens of prompt and answer together. vocab_size: ids a prompt may hold and the
    sampler may draw (output rows without a token are not counted). max_logprobs: alternatives a
    request may ask for.
    """

    max_model_len: int
    vocab_size: int
    max_logprobs: int = 20
