"""The double itself: it says what the script says, and sleeps, fails or dies when told to."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from octavo.backends.base import Batch, Float32Array, RowSampling
from octavo.engine.request import parent_id
from octavo.testing.scripted.script import Reply, Script
from octavo.testing.scripted.tokenizer import ScriptedTokenizer
from octavo.testing.slots import SlotBackend, SlotStep

SCRIPTED_LOGIT = 40.0  # all others are 0
REMEMBERED = 4096  # requests whose reply is remembered


class EngineDeath(BaseException):
    """Not an Exception: it passes the engine's handling of failed steps and ends its thread."""


@dataclass(frozen=True, slots=True)
class Line:
    """A reply as token ids."""

    token_ids: tuple[int, ...]
    end: bool

    def next_token(self, output: list[int], eos: int, eos_is_banned: bool) -> int | None:
        """The scripted token after this output; None for an empty line that may not end.

        A token that is not the scripted one (a mask forbade that) does not advance the script.
        """
        at = 0
        for token in output:
            at = 0 if at == len(self.token_ids) else at
            if at < len(self.token_ids) and token == self.token_ids[at]:
                at += 1
        ended = at == len(self.token_ids) and (not output or output[-1] != eos)
        if ended and self.end and not eos_is_banned:
            return eos
        if not self.token_ids:
            return None
        return self.token_ids[at % len(self.token_ids)]


class ScriptedBackend(SlotBackend):
    """Implements `octavo.backends.base.Backend`."""

    name = "scripted"

    def __init__(self, script: Script, tokenizer: ScriptedTokenizer) -> None:
        super().__init__(tokenizer.vocab_size)
        self._eos = tokenizer.eos_id
        self._tokenizer = tokenizer
        self._script = script
        self._by_text = [(r.when, self._line(r)) for r in script.replies if r.when is not None]
        in_turn = [self._line(r) for r in script.replies if r.when is None]
        self._in_turn = cycle(in_turn or [line for _, line in self._by_text])
        self._lines: OrderedDict[tuple[str, str], Line] = OrderedDict()
        self._num_steps = 0

    def start(self, batch: Batch) -> SlotStep:
        self._num_steps += 1
        if self._script.step_delay_ms:
            time.sleep(self._script.step_delay_ms / 1000)
        if self._num_steps == self._script.die_at_step:
            raise EngineDeath("the script says that the engine dies at this step")
        if self._num_steps == self._script.fail_at_step:
            raise RuntimeError("the script says that this step fails")
        return super().start(batch)

    def logits(self, request_id: str, context: list[int], how: RowSampling) -> Float32Array:
        row = np.zeros(self.vocab_size, np.float32)
        if how.target < 0:  # a prompt's own tokens are not scripted
            prompt = context[: len(context) - how.position]
            line = self._choose(request_id, self._tokenizer.decode(prompt))
            banned = how.banned_ids is not None and self._eos in how.banned_ids
            token = line.next_token(context[len(prompt) :], self._eos, banned)
            if token is not None:
                row[token] = SCRIPTED_LOGIT
        return row

    def _line(self, reply: Reply) -> Line:
        return Line(tuple(map(self._tokenizer.piece_id, reply.tokens())), reply.end)

    def _choose(self, request_id: str, prompt: str) -> Line:
        """The reply of a request: all its choices, and it after a preemption, get the same."""
        for when, line in self._by_text:
            if when in prompt:
                return line
        key = (parent_id(request_id), prompt)
        if key not in self._lines:
            self._lines[key] = next(self._in_turn)
            if len(self._lines) > REMEMBERED:
                self._lines.popitem(last=False)
        return self._lines[key]
