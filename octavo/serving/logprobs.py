"""Log-probabilities in words: token ids become texts and bytes, minus infinity a finite number."""

from typing import NamedTuple

from octavo.text.tokenizer import Tokenizer
from octavo.types import PositionLogprobs, TokenLogprob

LOWEST_LOGPROB = -9999.0  # JSON has no infinity


class TokenScore(NamedTuple):
    """One token with its log-probability. Parts of characters show as U+FFFD; `data` is exact."""

    token_id: int
    text: str
    data: bytes
    logprob: float
    rank: int


class TokenEntry(NamedTuple):
    """What is told of one position. `chosen` is None for the first token of a prompt.

    text, data: the token that stands there. offset: characters of the text before it.
    """

    text: str
    data: bytes
    offset: int
    chosen: TokenScore | None
    top: tuple[TokenScore, ...]


class TokenNames:
    """How tokens are written in log-probabilities: as text, or as `token_id:N`."""

    def __init__(self, tokenizer: Tokenizer, as_token_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_token_ids = as_token_ids

    def entry(self, token_id: int, offset: int, scores: PositionLogprobs | None) -> TokenEntry:
        """A position's token and what the model thought of it (None: it has no opinion)."""
        data = self._tokenizer.token_bytes(token_id)
        chosen = None if scores is None else self.score(scores.chosen)
        top = () if scores is None else tuple(map(self.score, scores.top))
        return TokenEntry(self._text(token_id, data), data, offset, chosen, top)

    def score(self, scored: TokenLogprob) -> TokenScore:
        """One token of a position."""
        data = self._tokenizer.token_bytes(scored.token_id)
        text = self._text(scored.token_id, data)
        logprob = max(scored.logprob, LOWEST_LOGPROB)
        return TokenScore(scored.token_id, text, data, logprob, scored.rank)

    def _text(self, token_id: int, data: bytes) -> str:
        return f"token_id:{token_id}" if self._as_token_ids else data.decode("utf-8", "replace")
