"""What both generating routes do: run a plan whole or as a stream of frames."""

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from octavo.api.errors import ErrorBody, as_request_error, error_info
from octavo.api.schemas.answers import PromptLogprob, PromptLogprobs, PromptTokensDetails, UsageInfo
from octavo.api.schemas.common import SamplingBody
from octavo.api.sse import DONE, EventStream, frame, unless_gone
from octavo.serving.choice import ChoiceDelta
from octavo.serving.context import Context
from octavo.serving.generation import Generation, IndexedDelta, Plan
from octavo.serving.logprobs import TokenNames
from octavo.serving.usage import Usage

_encode = msgspec.json.Encoder().encode


class Head(NamedTuple):
    """What all frames of an answer begin with."""

    id: str
    created: int
    model: str

    @classmethod
    def make(cls, context: Context, prefix: str, given: str | None) -> "Head":
        """A new answer's; `given`: the client's own request id."""
        return cls(
            f"{prefix}-{given or secrets.token_hex(16)}", int(time.time()), context.served.name
        )


FrameUsage = UsageInfo | UnsetType | None


class UsageMode(NamedTuple):
    """When a stream tells its usage: in a frame at the end, in every frame."""

    at_end: bool
    always: bool

    @classmethod
    def of(cls, context: Context, options: Any) -> "UsageMode":
        """From `stream_options` and the flag that forces usage."""
        forced = context.config.server.enable_force_include_usage
        wanted = options is not None and bool(options.include_usage)
        return cls(forced or wanted, options is not None and bool(options.continuous_usage_stats))

    def now(self, generation: Generation, told: int) -> FrameUsage:
        """The `usage` of a frame that is not the last. told: tokens in the frames so far."""
        if self.always:
            return usage_info(generation.usage._replace(completion_tokens=told))
        return None if self.at_end else UNSET


class Wire(Protocol):
    """How one route writes its frames and its whole answer."""

    def first_frames(self, generation: Generation, usage: FrameUsage) -> Iterator[Any]:
        """Frames before any token."""
        ...

    def frames(self, piece: IndexedDelta, usage: FrameUsage) -> Iterator[Any]:
        """Frames for a piece of a choice."""
        ...

    def usage_frame(self, usage: UsageInfo) -> Any:
        """The frame at the end that has no choices."""
        ...

    def answer(self, generation: Generation, choices: list[ChoiceDelta]) -> Any:
        """The whole answer, when it is not streamed."""
        ...


def usage_info(usage: Usage) -> UsageInfo:
    """Counts as the wire has them."""
    return UsageInfo(
        prompt_tokens=usage.prompt_tokens,
        total_tokens=usage.total_tokens,
        completion_tokens=usage.completion_tokens,
        prompt_tokens_details=PromptTokensDetails(usage.cached_tokens),
    )


def prompt_logprobs(
    context: Context, generation: Generation, index: int
) -> PromptLogprobs | UnsetType:
    """What the model thought of a choice's prompt, if that was asked for."""
    wanted = generation.plan.prompt_logprobs
    if wanted is None:
        return UNSET
    names = TokenNames(context.served.tokenizer, generation.plan.tokens_as_ids)
    rows: PromptLogprobs = []
    for position in generation.choices[index].prompt_logprobs or []:
        if position is None:
            rows.append(None)
            continue
        scores = map(names.score, dict.fromkeys((position.chosen, *position.top[:wanted])))
        rows.append({str(s.token_id): PromptLogprob(s.logprob, s.rank, s.text) for s in scores})
    return rows


def wants_logprobs(generation: Generation) -> bool:
    """Are log-probabilities told, even where no token has any?"""
    return generation.plan.jobs[0].params.logprobs is not None


async def answer(
    request: Request,
    body: SamplingBody,
    plan: Plan,
    make_wire: Callable[[Context, Head, bool], Wire],
    head: Head,
) -> Response:
    """Run a checked plan and answer as the body asks."""
    context: Context = request.app.state.context
    context.check_open()  # the plan took its time
    generation = await Generation.begin(context, plan)
    wire = make_wire(context, head, bool(body.return_token_ids))
    if not body.stream:
        return await _answer_whole(request, generation, wire)
    events = _events(generation, wire, UsageMode.of(context, body.stream_options))
    ping_s = context.config.server.sse_ping_s
    return EventStream(events, ping_s=ping_s, on_end=generation.close)


async def _answer_whole(request: Request, generation: Generation, wire: Wire) -> Response:
    """Wait for everything; a client that goes away ends it."""
    try:
        choices = await unless_gone(request.receive, generation.whole())
    finally:
        generation.close()
    return Response(_encode(wire.answer(generation, choices)), media_type="application/json")


async def _events(generation: Generation, wire: Wire, mode: UsageMode) -> AsyncGenerator[bytes]:
    """Frames as they come. An error becomes the last frame."""
    told = 0  # tokens in the frames so far; the choices may be ahead of them
    try:
        usage = mode.now(generation, 0)
        if first := b"".join(map(frame, wire.first_frames(generation, usage))):
            yield first
        async with aclosing(generation.deltas()) as pieces:
            async for piece in pieces:
                frames: list[bytes] = []
                for one in piece:
                    told += one.delta.num_tokens
                    usage = mode.now(generation, told)
                    frames += map(frame, wire.frames(one, usage))
                if frames:
                    yield b"".join(frames)
        if mode.at_end:
            yield frame(wire.usage_frame(usage_info(generation.usage)))
    except Exception as error:
        yield frame(ErrorBody(error_info(as_request_error(error))))
    yield DONE
