"""What the offline API answers with: frozen values, one `Completion` a prompt."""

from dataclasses import dataclass
from typing import NamedTuple

from octavo.serving.choice import ChoiceDelta
from octavo.serving.context import Context
from octavo.serving.generation import Generation
from octavo.serving.logprobs import TokenEntry, TokenNames, TokenScore
from octavo.serving.usage import Usage
from octavo.types import FinishReason, PositionLogprobs


class Delta(NamedTuple):
    """A piece of a streamed answer. The last one has a finish reason; earlier ones have text."""

    text: str
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


@dataclass(frozen=True, slots=True)
class CompletionChoice:
    """One answer to a prompt.

    token_ids: with the token that ended it (EOS, stop id), which has no text. logprobs: an entry
    for each token that has text, if asked for. stop_reason: the stop string or stop id.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    stop_reason: int | str | None = None
    logprobs: tuple[TokenEntry, ...] | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one prompt: `n` choices, the first also as `text` and so on.

    prompt: the prompt as it was given, if as text. prompt_token_ids: as the model read them.
    prompt_logprobs: for each token of the prompt the scores of that token and of the alternatives
    (None for the first, of which the model has no opinion), if asked for.
    """

    choices: tuple[CompletionChoice, ...]
    prompt_token_ids: tuple[int, ...]
    usage: Usage
    prompt: str | None = None
    prompt_logprobs: tuple[tuple[TokenScore, ...] | None, ...] | None = None

    @property
    def text(self) -> str:
        """Of the first choice, as the properties below."""
        return self.choices[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.choices[0].token_ids

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.choices[0].finish_reason

    @property
    def stop_reason(self) -> int | str | None:
        return self.choices[0].stop_reason

    @property
    def logprobs(self) -> tuple[TokenEntry, ...] | None:
        return self.choices[0].logprobs


def completion(context: Context, generation: Generation, answers: list[ChoiceDelta]) -> Completion:
    """A finished generation of one prompt, whose choices' pieces are put together in `answers`."""
    [job] = generation.plan.jobs
    wants_scores = job.params.logprobs is not None
    return Completion(
        choices=tuple(
            CompletionChoice(
                answer.text,
                tuple(answer.token_ids),
                answer.finish_reason,
                answer.stop_reason,
                tuple(answer.logprobs) if wants_scores else None,
            )
            for answer in answers
        ),
        prompt_token_ids=tuple(job.token_ids),
        usage=generation.usage,
        prompt=job.text,
        prompt_logprobs=_prompt_scores(
            TokenNames(context.served.tokenizer), generation.choices[0].prompt_logprobs
        ),
    )


def _prompt_scores(
    names: TokenNames, positions: list[PositionLogprobs | None] | None
) -> tuple[tuple[TokenScore, ...] | None, ...] | None:
    if positions is None:
        return None
    return tuple(
        None
        if position is None
        else tuple(map(names.score, dict.fromkeys((position.chosen, *position.top))))
        for position in positions
    )
