"""How many tokens a step may hold so that it ends soon: streams and aborts wait for it."""

# A step of a quarter of a second reads the weights often enough to lose little to it: on a CPU that
# computes 500 prompt tokens a second, some percent.
STEP_TARGET_S = 0.25
FIRST_TOKENS = 512  # while nothing has been measured
LEAST_TOKENS = 64
MEASURED_TOKENS = 32  # a step of fewer says nothing of how long many take


class Pace:
    """A token budget that follows the speed of the steps, from `least` to `most` tokens.

    target_s: how long a step should take; None: the budget is always `most`. What a step holds
    changes no answer, only when it comes.
    """

    def __init__(self, most: int, *, max_num_seqs: int, target_s: float | None) -> None:
        self._most = most
        self._least = min(most, max(LEAST_TOKENS, max_num_seqs))  # every stream goes on
        self._target_s = target_s
        self._tokens_per_s: float | None = None

    def budget(self) -> int:
        """Tokens that the next step may hold."""
        if self._target_s is None:
            return self._most
        wanted = FIRST_TOKENS
        if self._tokens_per_s is not None:
            wanted = int(self._tokens_per_s * self._target_s)
        return min(max(wanted, self._least), self._most)

    def note(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step that is done."""
        if num_tokens < MEASURED_TOKENS:
            return
        speed = num_tokens / max(seconds, 1e-6)
        before = self._tokens_per_s
        self._tokens_per_s = speed if before is None else (before + speed) / 2
