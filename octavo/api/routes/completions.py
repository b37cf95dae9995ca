"""POST /v1/completions."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from octavo.api.limits import read
from octavo.api.routes.streams import (
    FrameUsage,
    Head,
    answer,
    prompt_logprobs,
    usage_info,
    wants_logprobs,
)
from octavo.api.schemas.answers import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    UsageInfo,
)
from octavo.api.schemas.completions import CompletionBody
from octavo.serving.choice import ChoiceDelta
from octavo.serving.completions import plan_completion
from octavo.serving.context import Context
from octavo.serving.generation import Generation, IndexedDelta
from octavo.serving.logprobs import TokenEntry


async def create_completion(request: Request) -> Response:
    """Complete prompts."""
    context: Context = request.app.state.context
    body, _ = await read(context, request, CompletionBody)
    head = Head.make(context, "cmpl", body.request_id)
    plan = await context.run(plan_completion, context, body, head.id)
    return await answer(request, body, plan, CompletionWire, head)


class CompletionWire(NamedTuple):
    """Frames and answers of this route."""

    context: Context
    head: Head
    with_ids: bool

    def first_frames(self, generation: Generation, usage: FrameUsage) -> Iterator[Completion]:
        """With `return_token_ids` the prompts' ids; else nothing."""
        if self.with_ids:
            for index in range(len(generation.choices)):
                choice = CompletionChoice(
                    index, "", token_ids=[], prompt_token_ids=_prompt_ids(generation, index)
                )
                yield Completion(*self.head, [choice], usage)

    def frames(self, piece: IndexedDelta, usage: FrameUsage) -> Iterator[Completion]:
        """One frame a piece."""
        choice = self._choice(*piece)
        yield Completion(*self.head, [choice], usage)

    def usage_frame(self, usage: UsageInfo) -> Completion:
        """The frame at the end."""
        return Completion(*self.head, [], usage)

    def answer(self, generation: Generation, choices: list[ChoiceDelta]) -> Completion:
        """The whole answer."""
        told = [self._choice(index, whole) for index, whole in enumerate(choices)]
        for choice in told:
            if self.with_ids:
                choice.prompt_token_ids = _prompt_ids(generation, choice.index)
            choice.prompt_logprobs = prompt_logprobs(self.context, generation, choice.index)
            if choice.logprobs is None and wants_logprobs(generation):
                choice.logprobs = logprob_arrays([])
        return Completion(*self.head, told, usage_info(generation.usage))

    def _choice(self, index: int, delta: ChoiceDelta) -> CompletionChoice:
        return CompletionChoice(
            index,
            delta.text,
            logprob_arrays(delta.logprobs) if delta.logprobs else None,
            delta.finish_reason,
            delta.stop_reason,
            token_ids=delta.token_ids if self.with_ids else UNSET,
        )


def _prompt_ids(generation: Generation, index: int) -> list[int]:
    return generation.plan.jobs[index // generation.plan.n].token_ids


def logprob_arrays(entries: Sequence[TokenEntry]) -> CompletionLogprobs:
    """Entries as parallel arrays. Of tokens that look the same the most likely is told."""
    arrays = CompletionLogprobs([], [], [], [])
    for entry in entries:
        arrays.tokens.append(entry.text)
        arrays.text_offset.append(entry.offset)
        if entry.chosen is None:
            arrays.token_logprobs.append(None)
            arrays.top_logprobs.append(None)
            continue
        arrays.token_logprobs.append(entry.chosen.logprob)
        top = {entry.chosen.text: entry.chosen.logprob}
        for score in entry.top:
            top.setdefault(score.text, score.logprob)
        arrays.top_logprobs.append(top)
    return arrays
