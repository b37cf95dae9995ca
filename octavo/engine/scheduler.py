"""Who computes how many tokens in the next step.

There is no prefill phase and no decode phase: a step hands out a token budget so that each
request's computed tokens catch up with its known ones.

    token_ids   [ computed        | scheduled now | later ]
                0           num_computed     + num_tokens  num_known

A request that reaches its last known token gets logits, and so its next token.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from octavo.engine.kv import KVManager
from octavo.engine.request import Request, RequestStatus
from octavo.types import FinishReason

# Scored prompt positions need a row of logits each; this bounds their memory in one step.
MAX_SCORED_TOKENS = 256


class Scheduled(NamedTuple):
    """`num_tokens` tokens of a request from position `start` on are computed in this step."""

    request: Request
    start: int
    num_tokens: int

    @property
    def samples(self) -> bool:
        """Does the step reach the last known token?"""
        return self.start + self.num_tokens == self.request.num_known


class Schedule(NamedTuple):
    """One step: what is computed, who was admitted and who lost its blocks."""

    work: list[Scheduled]
    admitted: list[Request]
    preempted: list[Request]

    @property
    def num_tokens(self) -> int:
        """Tokens in the step."""
        return sum(item.num_tokens for item in self.work)


class Scheduler:
    """First come, first served; chunked prefill; preemption by recomputation."""

    def __init__(
        self,
        kv: KVManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        now: Callable[[], float],
    ) -> None:
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._now = now

    @property
    def has_work(self) -> bool:
        """Is there any request that is not finished?"""
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        """Queue a new request."""
        self.waiting.append(request)

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request in any state and free its blocks. A finished one stays as it is."""
        if request.finished:
            return
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self.kv.free(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        request.times.finished = self._now()

    def schedule(self, budget: int | None = None) -> Schedule:
        """Plan one step. Computed counts advance here; the requests of a failed step end.

        budget: tokens at most; None: max_num_batched_tokens.
        """
        plan = Schedule([], [], [])
        if budget is None:
            budget = self.max_num_batched_tokens
        budget = self._schedule_running(plan, budget)
        if not plan.preempted:
            self._admit_waiting(plan, budget)
        return plan

    def preempt_all(self) -> list[Request]:
        """Take every running request's blocks, so that the prefix cache can be emptied."""
        victims = self.running[::-1]
        for victim in victims:
            self._preempt(victim)
        return victims

    # ------------------------------------------------------------------ inside

    def _schedule_running(self, plan: Schedule, budget: int) -> int:
        """Running requests in order of admission; returns what is left of the budget.

        Those behind a long prompt go on beside it: it leaves each of them a token.
        """
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            left = max(budget - (len(self.running) - index - 1), 1)
            count = _chunk(request, request.num_computed, left)
            if not self._make_room(request, request.num_computed + count, plan.preempted):
                break  # it was its own last victim, hence the last of the running
            self._assign(plan, request, count)
            budget -= count
            index += 1
        return budget

    def _make_room(self, request: Request, num_tokens: int, preempted: list[Request]) -> bool:
        """Preempt from the tail until the request can grow; False when it fell itself."""
        while not self.kv.can_grow(request, num_tokens):
            # The most recently admitted. Requests scheduled earlier in this step stand before
            # `request` in the list, so a victim has no tokens in this step.
            victim = self.running[-1]
            self._preempt(victim)
            preempted.append(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, victim: Request) -> None:
        self.running.remove(victim)
        self.kv.free(victim)
        victim.status = RequestStatus.PREEMPTED
        victim.num_computed = 0
        victim.num_preemptions += 1
        self.waiting.appendleft(victim)

    def _admit_waiting(self, plan: Schedule, budget: int) -> None:
        """Head of the queue first; the first that does not fit stops the loop.

        The whole prompt must fit the free pool even if only a chunk of it runs now: otherwise two
        half-admitted prompts could starve each other.
        """
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            hit = self.kv.find_prefix(request)
            if not self.kv.can_admit(request, hit):
                break
            self.waiting.popleft()
            self.kv.admit(request, hit)
            if request.num_cached is None:
                request.num_cached = hit.num_tokens
                request.times.first_scheduled = self._now()
            request.num_computed = hit.num_tokens
            request.status = RequestStatus.RUNNING
            self.running.append(request)
            plan.admitted.append(request)
            count = _chunk(request, hit.num_tokens, budget)
            self._assign(plan, request, count)
            budget -= count

    def _assign(self, plan: Schedule, request: Request, count: int) -> None:
        self.kv.grow(request, request.num_computed + count)
        plan.work.append(Scheduled(request, request.num_computed, count))
        request.num_computed += count


def _chunk(request: Request, num_computed: int, budget: int) -> int:
    """Tokens of a request for this step: what is missing, within the budget."""
    count = min(request.num_known - num_computed, budget)
    scores = request.prompt_logprobs is not None and num_computed < request.prompt_len
    return min(count, MAX_SCORED_TOKENS) if scores else count
