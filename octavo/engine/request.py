"""One request inside the engine: its tokens, how many of them are computed, how it ends."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from octavo.engine.sampling import SamplingParams
from octavo.types import FinishReason, PositionLogprobs


def child_id(parent: str, index: int) -> str:
    """Engine id of the index-th choice of a client's request."""
    return f"{parent}#{index}"


def parent_id(request_id: str) -> str:
    """The client's request that an engine id belongs to."""
    return request_id.rpartition("#")[0] or request_id


class RequestStatus(Enum):
    """waiting → running → finished, with running → preempted → running in between."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(slots=True)
class RequestTimes:
    """Moments on the monotonic clock, in seconds; 0: not yet."""

    arrived: float = 0.0
    first_scheduled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    finished: float = 0.0


@dataclass(slots=True, eq=False)
class Request:
    """A sequence of known tokens that the steps compute until it ends.

    token_ids: prompt, then output; shared with other choices until the first append, so never
    changed in place by others. num_computed: leading tokens whose keys and values are (or, in
    the running step, will be) in the cache. num_cached: prompt tokens that first admission found.
    """

    request_id: str
    token_ids: list[int]
    params: SamplingParams
    seed: int
    priority: int = 0
    cache_salt: str | None = None
    prompt_len: int = field(init=False)
    status: RequestStatus = RequestStatus.WAITING
    num_computed: int = 0
    num_cached: int | None = None
    num_preemptions: int = 0
    block_hashes: list[bytes] = field(default_factory=list)
    output_counts: Counter[int] = field(default_factory=Counter)
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
    times: RequestTimes = field(default_factory=RequestTimes)

    def __post_init__(self) -> None:
        self.prompt_len = len(self.token_ids)
        if self.params.prompt_logprobs is not None:
            self.prompt_logprobs = [None] * self.prompt_len

    @property
    def num_known(self) -> int:
        """Tokens of prompt and output."""
        return len(self.token_ids)

    @property
    def num_output(self) -> int:
        """Tokens of output."""
        return len(self.token_ids) - self.prompt_len

    @property
    def finished(self) -> bool:
        """Has it ended, for whatever reason?"""
        return self.status is RequestStatus.FINISHED

    @property
    def reads_prefix_cache(self) -> bool:
        """A prompt whose log-probabilities are wanted must be computed in full."""
        return self.params.prompt_logprobs is None

    def append(self, token_id: int) -> None:
        """Add a generated token. The first one makes the list this request's own."""
        if self.num_output == 0:
            self.token_ids = self.token_ids.copy()
        self.token_ids.append(token_id)
        self.output_counts[token_id] += 1


def why_finished(request: Request, max_model_len: int) -> tuple[FinishReason, int | None] | None:
    """Stop check after an appended token: (finish reason, stop id) or None.

    Order as in vLLM: EOS, stop ids, then length; so an EOS as the last allowed token is a `stop`.
    Before `min_tokens` only the length can end a request (its ends are masked, but a request may
    have fewer tokens left than its minimum).
    """
    params = request.params
    last = request.token_ids[-1]
    if request.num_output >= params.min_tokens:
        if last in params.eos_token_ids:
            return "stop", None
        if last in params.stop_token_ids:
            return "stop", last
    if request.num_output >= params.max_tokens or request.num_known >= max_model_len:
        return "length", None
    return None
