"""Token counts of a request."""

from typing import NamedTuple


class Usage(NamedTuple):
    """prompt_tokens counts each prompt once, whatever `n`; cached_tokens are those of the prompts
    that the prefix cache already held."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt and answer."""
        return self.prompt_tokens + self.completion_tokens
