"""Prompts to token ids, within the model's length. Slow work: runs on worker threads."""

from dataclasses import dataclass
from typing import NamedTuple

from octavo.errors import ContextTooLong, InvalidRequest
from octavo.text.tokenizer import RenderedPrompt, Tokenizer
from octavo.types import ModelLimits

GivenPrompt = str | list[str] | list[int] | list[list[int]]


class Prompt(NamedTuple):
    """A prompt and the text it came from, if it came as text."""

    token_ids: list[int]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class PromptReader:
    """Tokenises and checks prompts for one model.

    max_chars: longest text, 0: as the model's length allows. max_prompts: of one request, 0: any.
    """

    tokenizer: Tokenizer
    limits: ModelLimits
    max_chars: int = 0
    max_prompts: int = 0

    def read_all(
        self, given: GivenPrompt, add_special_tokens: bool = True, *, any_length: bool = False
    ) -> list[Prompt]:
        """The `prompt` of a completion request: text, token ids, or a list of either.

        any_length: what is longer than the model is no error; it will be cut.
        """
        prompts: list[str | list[int]]
        if isinstance(given, str):
            prompts = [given]
        elif given and all(isinstance(item, int) for item in given):
            prompts = [given]  # type: ignore[list-item]
        else:
            prompts = list(given)  # type: ignore[arg-type]
        if not prompts:
            raise InvalidRequest("prompt is empty; send a text or token ids", param="prompt")
        if self.max_prompts and len(prompts) > self.max_prompts:
            raise InvalidRequest(
                f"prompt is a list of {len(prompts)}; allowed: {self.max_prompts} in one request",
                param="prompt",
            )
        return [self._read(prompt, add_special_tokens, any_length) for prompt in prompts]

    def _read(self, given: str | list[int], add_special_tokens: bool, any_length: bool) -> Prompt:
        if isinstance(given, str):
            prompt = Prompt(self.encode(given, add_special_tokens, any_length=any_length), given)
        else:
            prompt = Prompt(self.check_ids(given, "prompt"))
        if not prompt.token_ids:
            raise InvalidRequest("prompt has no tokens; it must not be empty", param="prompt")
        return prompt

    def encode(
        self, text: str, add_special_tokens: bool = True, *, any_length: bool = False
    ) -> list[int]:
        """A prompt that was given as text, control tokens in it parsed."""
        self.check_size(text, "prompt", any_length)
        return self.tokenizer.encode(text, add_special_tokens)

    def encode_chat(
        self,
        rendered: RenderedPrompt,
        add_special_tokens: bool = False,
        *,
        any_length: bool = False,
    ) -> list[int]:
        """A rendered chat."""
        self.check_size(rendered.text, "messages", any_length)
        return self.tokenizer.encode_rendered(rendered, add_special_tokens)

    def check_ids(self, token_ids: list[int], param: str) -> list[int]:
        """The ids themselves. Raises InvalidRequest for one that the model does not have."""
        size = self.limits.vocab_size
        for token_id in token_ids:
            if not 0 <= token_id < size:
                raise InvalidRequest(
                    f"{param} has token id {token_id}; allowed: 0 to {size - 1}", param=param
                )
        return token_ids

    def check_size(self, text: str, param: str, any_length: bool = False) -> None:
        """Refuse what cannot fit, before the slow work. A token has at most so many bytes."""
        if self.max_chars and len(text) > self.max_chars:
            raise InvalidRequest(
                f"{param} has {len(text)} characters; allowed: {self.max_chars}", param=param
            )
        if any_length:
            return
        limit, longest = self.limits.max_model_len, self.tokenizer.max_token_bytes
        size_bytes = len(text.encode("utf-8", "surrogatepass"))
        if size_bytes > limit * longest:
            raise ContextTooLong(
                f"{param} has {size_bytes} bytes and so at least {-(-size_bytes // longest)} "
                f"tokens; the model's length is {limit}, prompt and answer together; shorten it",
                param=param,
            )


def truncate(
    token_ids: list[int], keep: int | None, side: str | None, limits: ModelLimits
) -> list[int]:
    """`truncate_prompt_tokens`: the last tokens (side `right`: the first); -1: what fits."""
    if keep is None:
        return token_ids
    count = limits.max_model_len - 1 if keep == -1 else keep
    if len(token_ids) <= count:
        return token_ids
    if count == 0:
        raise InvalidRequest(
            "truncate_prompt_tokens is 0, which leaves nothing; allowed: -1 or at least 1",
            param="truncate_prompt_tokens",
        )
    return token_ids[:count] if side == "right" else token_ids[-count:]
