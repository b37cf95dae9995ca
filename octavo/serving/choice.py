"""One choice of an answer: token ids → characters → stop strings → deltas, forward only.

Streamed and whole answers are made of the same deltas, so they cannot differ. What later reads the
text (reasoning, tool calls) goes where `_pending_text` grows: behind the stop strings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from octavo.engine.sampling import SamplingParams
from octavo.engine.stream import TokenDelta
from octavo.serving.logprobs import TokenEntry, TokenNames
from octavo.text.automaton import Automaton
from octavo.text.detokenizer import Detokenizer
from octavo.text.stop import StopStrings
from octavo.text.tokenizer import Tokenizer
from octavo.types import FinishReason, PositionLogprobs


@dataclass(slots=True)
class ChoiceDelta:
    """A piece of a choice. The last one has a finish reason; earlier ones have text.

    num_tokens: generated since the piece before. stop_reason: the stop string or stop id that ended
    the choice.
    """

    text: str = ""
    num_tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenEntry] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None

    def add(self, later: "ChoiceDelta") -> None:
        """Append a later piece: the sum of all is the whole choice."""
        self.text += later.text
        self.num_tokens += later.num_tokens
        self.token_ids += later.token_ids
        self.logprobs += later.logprobs
        self.finish_reason = later.finish_reason
        self.stop_reason = later.stop_reason


class Choice:
    """Turns a request's token deltas into text deltas.

    The token that ends an answer (EOS, stop id) is counted, but has neither text nor entry.
    Log-probability entries and token ids go out together with the next text.
    prefix, prompt_ids: a prompt that the text begins with (`echo`), its tokens for the entries.
    stops: made of `params.stop` beforehand, for many choices; None: made here.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        names: TokenNames,
        *,
        prefix: str = "",
        prompt_ids: Sequence[int] = (),
        stops: Automaton | None = None,
    ) -> None:
        self.num_tokens = 0  # generated, the last one included
        self.cached_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.prompt_logprobs: list[PositionLogprobs | None] | None = None
        self._tokenizer = tokenizer
        self._params = params
        self._names = names
        self._text = Detokenizer(tokenizer, params.skip_special_tokens)
        self._stops = StopStrings(
            params.stop if stops is None else stops, params.include_stop_str_in_output
        )
        self._prompt_ids = prompt_ids
        self._pending = ChoiceDelta(text=prefix)
        self._chars = len(prefix)  # decoded so far, whether sent or held
        self._since = 0  # tokens since the last delta
        self._began = False

    @property
    def finished(self) -> bool:
        """Has the last delta been told?"""
        return self.finish_reason is not None

    def feed(self, delta: TokenDelta) -> list[ChoiceDelta]:
        """What can be told after these tokens. Once `finished`, nothing more is fed."""
        self.cached_tokens = max(self.cached_tokens, delta.cached_tokens)
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = delta.prompt_logprobs
            self._echo_prompt(delta.prompt_logprobs, self._pending.text)
        ready: list[ChoiceDelta] = []
        num_speaking = len(delta.token_ids) - (delta.finish_reason == "stop")
        for i, token_id in enumerate(delta.token_ids):
            self.num_tokens += 1
            self._pending.num_tokens += 1
            if i >= num_speaking:
                self._pending.token_ids.append(token_id)
                break
            scores = None if delta.logprobs is None else delta.logprobs[i]
            matched = self._take(token_id, scores)
            if matched is not None:
                return [*ready, self._finish("stop", matched)]
            is_due = not self._began or self._since >= self._params.stream_interval
            if is_due and self._pending.text:
                ready.append(self._cut())
        if delta.finish_reason is not None:
            ready.append(self._end(delta.finish_reason, delta.stop_reason))
        return ready

    def _take(self, token_id: int, scores: PositionLogprobs | None) -> str | None:
        """Add one token; the stop string that it completed, if any."""
        self._since += 1
        self._pending.token_ids.append(token_id)
        if scores is not None:
            self._pending.logprobs.append(self._names.entry(token_id, self._chars, scores))
        text = self._text.feed([token_id])
        self._chars += len(text)
        emit, matched = self._stops.feed(text, self._may_stop)
        self._pending.text += emit
        return matched

    @property
    def _may_stop(self) -> bool:
        return self.num_tokens >= self._params.min_tokens

    def _end(self, reason: FinishReason, stop_reason: int | None) -> ChoiceDelta:
        """The engine is done: what was held comes out."""
        emit, matched = self._stops.feed(self._text.flush(), self._may_stop)
        self._pending.text += emit
        if matched is not None:
            return self._finish("stop", matched)
        self._pending.text += self._stops.flush()
        return self._finish(reason, stop_reason)

    def _finish(self, reason: FinishReason, stop_reason: int | str | None) -> ChoiceDelta:
        self.finish_reason = reason
        last = self._cut()
        last.finish_reason, last.stop_reason = reason, stop_reason
        return last

    def _cut(self) -> ChoiceDelta:
        cut, self._pending = self._pending, ChoiceDelta()
        self._since, self._began = 0, True
        return cut

    def _echo_prompt(self, scores: list[PositionLogprobs | None], prompt: str) -> None:
        """Entries of the echoed prompt, in front of all others."""
        wanted = self._params.logprobs or 0
        offsets = self._prompt_offsets(prompt)
        for token_id, offset, score in zip(self._prompt_ids, offsets, scores, strict=False):
            if score is not None:
                score = score._replace(top=score.top[:wanted])
            self._pending.logprobs.append(self._names.entry(token_id, offset, score))

    def _prompt_offsets(self, prompt: str) -> list[int]:
        """Where each token of the prompt begins in its text.

        Encoding may have put things around it that are not in the text: BOS and a space in front,
        EOS behind. They are at 0 and at the end, and all others where the text has them.
        """
        text, pieces = Detokenizer(self._tokenizer, False), []
        for token_id in self._prompt_ids:
            pieces.append(text.feed([token_id]))
        spelled = "".join(pieces) + text.flush()
        end = len(spelled)
        for token_id, piece in zip(reversed(self._prompt_ids), reversed(pieces), strict=True):
            if token_id not in self._tokenizer.special_ids or spelled.endswith(prompt, 0, end):
                break
            end -= len(piece)
        starts = accumulate(map(len, pieces), initial=len(prompt) - end)
        return [min(max(start, 0), len(prompt)) for start in starts]
