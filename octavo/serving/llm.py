"""The offline API: a model in this process, without a server. `octavo.LLM` is the class here.

    with octavo.LLM("smollm2") as llm:
        for answer in llm.generate(["Once upon a time", "The sea"], {"max_tokens": 40}):
            print(answer.text)

Everything behind it is the server's: the same plans, engine and choices, on threads of their own.
"""

import asyncio
import secrets
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from os import PathLike
from types import TracebackType
from typing import Any, TypedDict, Unpack

from octavo.config import DEFAULT_MODEL, Config, config_from_keywords
from octavo.engine.settings import EngineSettings
from octavo.errors import InvalidRequest, RequestError, Unavailable
from octavo.serving.background import Background, Items
from octavo.serving.chat import Chat, plan_chat
from octavo.serving.completions import plan_completion
from octavo.serving.context import Context, make_context
from octavo.serving.generation import Generation, Plan
from octavo.serving.loading import Served, load_served
from octavo.serving.offline_params import (
    Message,
    Params,
    conversation_list,
    prompt_list,
    request_fields,
    tool_list,
)
from octavo.serving.params import num_alternatives
from octavo.serving.progress import Progress, Report, batch_progress
from octavo.serving.results import Completion, Delta, completion

Prompts = str | Sequence[int] | Sequence[str | Sequence[int]]
Conversations = Sequence[Message] | Sequence[Sequence[Message]]
AllParams = Params | Sequence[Params] | None


class ChatOptions(TypedDict, total=False):
    """Fields of a chat request that say how it is written for the model."""

    tools: Sequence[Mapping[str, Any]] | None
    chat_template_kwargs: dict[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None


class LLM:
    """A loaded model. `close` it, or use it in a `with`; any thread may call any method.

    Needs no event loop of the caller's, and can be used where one runs (it blocks that loop).
    """

    def __init__(
        self,
        model: str | PathLike[str] = DEFAULT_MODEL,
        *,
        load: Callable[[Config], Served] = load_served,
        **options: Any,
    ) -> None:
        """Load a model: a folder, a .gguf file, or `smollm2`. Raises ConfigError.

        options: of docs/flags.md by field name, as max_model_len, max_num_seqs, backend; those of
        the HTTP side are none. load: makes the served model; doubles pass their own.
        """
        config = config_from_keywords({"model": model} | options)
        served = load(config)
        served.backend.wait_loaded()
        settings = EngineSettings.derive(config, served.backend.cache_groups, served.model_len)
        settings = replace(settings, step_target_s=None)  # a batch gains nothing from short steps
        workers = ThreadPoolExecutor(1)  # nothing is run there: plans are made by the callers
        self._context = make_context(config, served, settings, workers)
        self._background = Background("octavo-llm")
        self._close = weakref.finalize(self, _close, self._context, self._background)
        self._close.atexit = False  # all threads are daemons; at exit nothing has to be saved
        self._background.run(_start(self._context))

    @property
    def model(self) -> str:
        """The name it is served under."""
        return self._context.served.name

    @property
    def max_model_len(self) -> int:
        """Tokens of prompt and answer together."""
        return self._context.rules.limits.max_model_len

    def generate(
        self, prompts: Prompts, params: AllParams = None, *, progress: Progress = True
    ) -> list[Completion]:
        """Complete prompts (text, token ids, or a list of either) as one batch, in their order.

        params: for all, or one for each prompt. progress: a bar on stderr where that is a terminal
        ("always": anywhere). Raises InvalidRequest before anything runs; EngineFailure.
        """
        given = prompt_list(prompts)
        return self._answers(
            _each(_paired(given, params), lambda one: self._completion(*one)), progress
        )

    def chat(
        self,
        messages: Conversations,
        params: AllParams = None,
        *,
        progress: Progress = True,
        **how: Unpack[ChatOptions],
    ) -> list[Completion]:
        """Answer a conversation (a list of messages), or a list of them as one batch.

        how: of all of them. The rest as in `generate`.
        """
        given = conversation_list(messages)
        return self._answers(
            _each(_paired(given, params), lambda one: self._chat(one[0], one[1], how)), progress
        )

    def stream(self, prompt: str | Sequence[int], params: Params | None = None) -> Items[Delta]:
        """Complete one prompt, its pieces as they come. `close` ends it, from any thread."""
        [given] = _single(prompt_list(prompt), "prompt")
        return self._streamed(self._completion(given, params))

    def stream_chat(
        self, messages: Sequence[Message], params: Params | None = None, **how: Unpack[ChatOptions]
    ) -> Items[Delta]:
        """Answer one conversation, its pieces as they come; otherwise as `chat` and `stream`."""
        [given] = _single(conversation_list(messages), "conversation")
        return self._streamed(self._chat(given, params, how))

    def close(self) -> None:
        """End what runs, and the threads. Idempotent."""
        self._close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ inside

    def _completion(self, prompt: str | list[int], params: Params | None) -> Plan:
        self._check_open()
        return plan_completion(self._context, request_fields(params, prompt=prompt), _new_id())

    def _chat(self, messages: list[Message], params: Params | None, how: ChatOptions) -> Plan:
        self._check_open()
        return plan_chat(
            self._context, *_chat_fields(self._context, messages, params, how), _new_id()
        )

    def _check_open(self) -> None:
        if not self._close.alive:
            raise Unavailable("this LLM is closed; make another one")

    def _answers(self, plans: list[Plan], progress: Progress) -> list[Completion]:
        with batch_progress(len(plans), progress) as report:
            return self._background.run(_run_all(self._context, plans, report))

    def _streamed(self, plan: Plan) -> Items[Delta]:
        if plan.n > 1:
            raise InvalidRequest(f"n is {plan.n}; allowed when streaming: 1", param="n")
        return self._background.iterate(_stream(self._context, plan), keep=self)


def _chat_fields(
    context: Context, messages: list[Message], params: Params | None, how: ChatOptions
) -> tuple[Any, Chat]:
    """As plan_chat takes them. A chat's log-probabilities are asked for by two fields there."""
    further = dict(how)
    chat = Chat(messages, tool_list(further.pop("tools", None)))
    fields = request_fields(params, **further)
    if fields.logprobs is not None:
        wanted = num_alternatives("logprobs", fields.logprobs, context.rules.limits)
        fields.logprobs, fields.top_logprobs = True, wanted
    return fields, chat


def _paired(given: list[Any], params: AllParams) -> list[tuple[Any, Params | None]]:
    """Each prompt with its parameters."""
    if not isinstance(params, Sequence) or isinstance(params, str):
        return [(one, params) for one in given]
    if len(params) != len(given):
        raise InvalidRequest(
            f"params is a list of {len(params)} for {len(given)} prompts; give one for each, "
            "or one for all",
            param="params",
        )
    return list(zip(given, params, strict=True))


def _each(pairs: list[tuple[Any, Params | None]], plan: Callable[..., Plan]) -> list[Plan]:
    """The plan of each. An error's note says whose it is."""
    plans = []
    for index, pair in enumerate(pairs):
        try:
            plans.append(plan(pair))
        except RequestError as error:
            if len(pairs) > 1:
                error.add_note(f"in number {index} of the batch, counted from 0")
            raise
    return plans


def _single(given: list[Any], what: str) -> list[Any]:
    if len(given) != 1:
        raise InvalidRequest(f"one {what} can be streamed, not {len(given)}")
    return given


def _new_id() -> str:
    return f"llm-{secrets.token_hex(8)}"


async def _start(context: Context) -> None:
    context.engine.start()


async def _run_all(context: Context, plans: list[Plan], report: Report) -> list[Completion]:
    """All at once; the first failure ends the others."""
    generations: list[Generation] = []

    async def finish(generation: Generation) -> Completion:
        done = completion(context, generation, await generation.whole())
        report(done.usage.completion_tokens)
        return done

    tasks: list[asyncio.Task[Completion]] = []
    try:
        for plan in plans:
            generations.append(await Generation.begin(context, plan))
        tasks += [asyncio.create_task(finish(generation)) for generation in generations]
        return await asyncio.gather(*tasks)
    finally:
        for generation in generations:
            generation.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stream(context: Context, plan: Plan) -> AsyncGenerator[Delta]:
    generation = await Generation.begin(context, plan)
    async with aclosing(generation.deltas()) as pieces:
        async for piece in pieces:
            for _, delta in piece:
                yield Delta(
                    delta.text, tuple(delta.token_ids), delta.finish_reason, delta.stop_reason
                )


def _close(context: Context, background: Background) -> None:
    context.workers.shutdown()
    if not background.is_current:  # the collector may call from any thread
        background.run(context.engine.stop())
        background.close()
