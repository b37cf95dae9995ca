"""POST /v1/chat/completions."""

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
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChatTokenEntry,
    ChatTokenScore,
    UsageInfo,
)
from octavo.api.schemas.chat import ChatBody
from octavo.serving.chat import Chat, plan_chat
from octavo.serving.choice import ChoiceDelta
from octavo.serving.context import Context
from octavo.serving.generation import Generation, IndexedDelta
from octavo.serving.logprobs import TokenEntry


async def create_chat_completion(request: Request) -> Response:
    """Answer a chat."""
    context: Context = request.app.state.context
    body, raw = await read(context, request, ChatBody)
    head = Head.make(context, "chatcmpl", body.request_id)
    chat = Chat(raw["messages"], raw.get("tools"))
    plan = await context.run(plan_chat, context, body, chat, head.id)
    return await answer(request, body, plan, ChatWire, head)


class ChatWire(NamedTuple):
    """Frames and answers of this route."""

    context: Context
    head: Head
    with_ids: bool

    def first_frames(self, generation: Generation, usage: FrameUsage) -> Iterator[ChatChunk]:
        """The role of each choice."""
        for index in range(len(generation.choices)):
            role = ChatChunkChoice(index, ChatDelta(role="assistant", content=""))
            chunk = ChatChunk(*self.head, [role], usage)
            if self.with_ids and index == 0:
                chunk.prompt_token_ids = generation.plan.jobs[0].token_ids
            yield chunk

    def frames(self, piece: IndexedDelta, usage: FrameUsage) -> Iterator[ChatChunk]:
        """A frame with the text, and at the end one without."""
        index, delta = piece
        told = ChatChunkChoice(
            index,
            ChatDelta(),
            chat_logprobs(delta.logprobs) if delta.logprobs else None,
            token_ids=delta.token_ids if self.with_ids else UNSET,
        )
        if delta.text:
            told.delta.content = delta.text
            yield ChatChunk(*self.head, [told], usage)
            told = ChatChunkChoice(index, ChatDelta(), token_ids=[] if self.with_ids else UNSET)
        if delta.finish_reason is not None:
            told.finish_reason, told.stop_reason = delta.finish_reason, delta.stop_reason
            yield ChatChunk(*self.head, [told], usage)

    def usage_frame(self, usage: UsageInfo) -> ChatChunk:
        """The frame at the end."""
        return ChatChunk(*self.head, [], usage)

    def answer(self, generation: Generation, choices: list[ChoiceDelta]) -> ChatCompletion:
        """The whole answer."""
        scored = wants_logprobs(generation)
        told = [
            ChatChoice(
                index,
                ChatMessage(whole.text),
                whole.finish_reason,
                chat_logprobs(whole.logprobs) if scored else None,
                whole.stop_reason,
                whole.token_ids if self.with_ids else UNSET,
            )
            for index, whole in enumerate(choices)
        ]
        return ChatCompletion(
            *self.head,
            told,
            usage_info(generation.usage),
            prompt_logprobs(self.context, generation, 0),
            generation.plan.jobs[0].token_ids if self.with_ids else UNSET,
        )


def chat_logprobs(entries: Sequence[TokenEntry]) -> ChatLogprobs:
    """Entries in the chat's form."""
    content = []
    for entry in entries:
        assert entry.chosen is not None  # only a prompt's first token has no score; none is here
        top = [ChatTokenScore(s.text, s.logprob, list(s.data)) for s in entry.top]
        content.append(ChatTokenEntry(entry.text, entry.chosen.logprob, list(entry.data), top))
    return ChatLogprobs(content)
