"""How many tokens a step may hold so that it ends soon: streams and aborts wait for it."""

STEP_TARGET_S = 0.25
# A step costs something whatever it holds (it reads all weights). It may last this many times as
# long, even beyond the target, so that long prompts lose no more than a quarter of their speed.
LEAST_TIMES_FIXED = 4
FIRST_TOKENS = 64  # of a prompt, while nothing has been measured
LEAST_TOKENS = 16  # of a prompt in any step
FEW_TOKENS = 8  # a step of so few shows what a step costs at the least


class Pace:
    """A token budget that follows the speed of the steps; at most `most` tokens.

    target_s: how long a step should take; None: the budget is always `most`.
    """

    def __init__(self, most: int, *, target_s: float | None) -> None:
        self._most = most
        self._target_s = target_s
        self._fixed_s = 0.0
        self._token_s: float | None = None  # of each further token

    def budget(self, num_running: int) -> int:
        """Tokens that the next step may hold: one for each running request, and prompts beside."""
        if self._target_s is None:
            return self._most
        prompt = FIRST_TOKENS
        if self._token_s is not None:
            free_s = max(self._target_s, LEAST_TIMES_FIXED * self._fixed_s) - self._fixed_s
            prompt = int(min(free_s / self._token_s, self._most))
        return min(max(prompt, LEAST_TOKENS) + num_running, self._most)

    def note(self, num_tokens: int, num_rows: int, seconds: float) -> None:
        """Learn from a step that is done.

        num_rows: of its logits. A step of hardly more tokens says nothing of prompts.
        """
        if num_tokens <= FEW_TOKENS:
            self._fixed_s = _mean(self._fixed_s, seconds)
        elif num_tokens - num_rows >= FEW_TOKENS:
            token_s = max(seconds - self._fixed_s, seconds / 16, 1e-9) / num_tokens
            self._token_s = _mean(self._token_s, token_s)


def _mean(before: float | None, now: float) -> float:
    """Of what was and what is, so that one hiccup counts half and soon nothing."""
    return (before + now) / 2 if before else now
