"""Completion requests to a plan for the engine. Slow: runs on a worker thread."""

from typing import Any, Protocol

from octavo.errors import InvalidRequest
from octavo.serving.context import Context
from octavo.serving.generation import Job, Plan
from octavo.serving.models import check_model
from octavo.serving.params import (
    BOUNDS,
    SamplingFields,
    build_params,
    check_fields,
    fit_to_prompt,
    num_alternatives,
)
from octavo.serving.prompts import Prompt, truncate
from octavo.text.stop import stop_automaton

DEFAULT_MAX_TOKENS = 16


class CompletionFields(SamplingFields, Protocol):
    """What is read of a completion request."""

    model: str | None
    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None
    echo: bool | None
    add_special_tokens: bool | None
    cache_salt: str | None
    return_tokens_as_token_ids: bool | None
    truncation_side: Any


def plan_completion(context: Context, fields: CompletionFields, request_id: str) -> Plan:
    """Check everything and tokenise. Raises RequestError; nothing has been started then."""
    check_model(fields.model, context.served.name)
    check_fields(fields, context.rules)
    limits = context.rules.limits
    logprobs = num_alternatives("logprobs", fields.logprobs, limits)
    prompt_logprobs = num_alternatives("prompt_logprobs", fields.prompt_logprobs, limits)
    scores_echo = bool(fields.echo) and logprobs is not None
    params = build_params(
        fields,
        context.rules,
        context.served.tokenizer,
        max_tokens=_max_tokens(fields),
        logprobs=logprobs,
        prompt_logprobs=_most(prompt_logprobs, logprobs) if scores_echo else prompt_logprobs,
    )
    prompts = context.prompts.read_all(
        fields.prompt,
        fields.add_special_tokens is not False,
        any_length=fields.truncate_prompt_tokens is not None,
    )
    n = fields.n or 1
    most = int(BOUNDS["n"].high)
    if len(prompts) * n > most:
        raise InvalidRequest(
            f"n is {n} for {len(prompts)} prompts; allowed: {most} choices in one request",
            param="n",
        )
    jobs = []
    stops = stop_automaton(params.stop)
    for prompt in prompts:
        token_ids = truncate(
            prompt.token_ids, fields.truncate_prompt_tokens, fields.truncation_side, limits
        )
        cut = Prompt(token_ids, prompt.text if token_ids is prompt.token_ids else None)
        jobs.append(
            Job(
                token_ids,
                fit_to_prompt(params, len(token_ids), limits),
                stops,
                text=cut.text,
                prefix=_text_of(context, cut) if fields.echo else "",
                echo=scores_echo,
            )
        )
    return Plan(
        request_id,
        jobs,
        n=n,
        priority=fields.priority or 0,
        cache_salt=fields.cache_salt,
        tokens_as_ids=bool(fields.return_tokens_as_token_ids),
        prompt_logprobs=prompt_logprobs,
    )


def _most(*counts: int | None) -> int | None:
    """The largest of them; None is less than 0."""
    return max((count for count in counts if count is not None), default=None)


def _max_tokens(fields: CompletionFields) -> int | None:
    """The client's limit, None: as many as fit."""
    if fields.max_tokens is None:
        return DEFAULT_MAX_TOKENS
    if fields.max_tokens == 0 and not fields.echo:
        raise InvalidRequest(
            "max_tokens is 0; allowed: at least 1, -1 for as many as fit, or 0 with echo",
            param="max_tokens",
        )
    return None if fields.max_tokens == -1 else fields.max_tokens


def _text_of(context: Context, prompt: Prompt) -> str:
    """The prompt as it was given, or decoded."""
    if prompt.text is not None:
        return prompt.text
    return context.served.tokenizer.decode(prompt.token_ids)
