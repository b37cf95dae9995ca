"""The protocol between engine and backend: flat arrays in, tokens and log-probabilities out.

A backend owns the weights and the paged cache memory; the engine owns which block belongs to whom.
One call runs a whole step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers whose cache is addressed by one block table.

    kind: "full" keeps every position; later kinds (window, latent, recurrent) keep less.
    bytes_per_token: cache bytes of one token over all the layers of the group.
    """

    kind: Literal["full"]
    layers: tuple[int, ...]
    bytes_per_token: int


@dataclass(frozen=True, slots=True)
class RowSampling:
    """How the token of one row of logits is found. All ids are below the sampler's vocabulary.

    Order, as in vLLM: grammar mask, raw log-probabilities are read, allowed ids, banned ids and
    bias, penalties, then greedy (temperature 0) or temperature, min_p, top_k, top_p and one draw.
    The draw is a function of (seed, position) and the distribution alone.
    """

    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0  # unsigned 64 bits
    position: int = 0  # 0 for the first token of the answer
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seen_ids: Int32Array | None = None  # unique ids of prompt and output, for repetition_penalty
    output_ids: Int32Array | None = None  # unique ids of the output ...
    output_counts: Int32Array | None = None  # ... and how often each occurred
    bias_ids: Int32Array | None = None
    bias_values: Float32Array | None = None
    allowed_ids: Int32Array | None = None  # None: all
    banned_ids: Int32Array | None = None
    target: int = -1  # >= 0: do not sample, take this token and tell its log-probability
    num_logprobs: int = -1  # -1: none wanted; 0: the chosen token's; k: and the k most likely


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: S sequences with T tokens in all, R rows of logits wanted.

    Token t of sequence s lies in query_starts[s] <= t < query_starts[s + 1]. `slots[g][t]` is the
    cache slot (block * block_size + offset) in group g where token t's keys and values go;
    `block_tables[g][s]` are the blocks of sequence s in context order, padded with 0. After this
    step's writes the first context_lens[s] positions of sequence s are in the cache.
    """

    request_ids: tuple[str, ...]  # S opaque names, for logs, traces and doubles

    token_ids: Int32Array  # [T]
    positions: Int32Array  # [axes, T]; one axis for text
    query_starts: Int32Array  # [S + 1]
    context_lens: Int32Array  # [S]
    slots: tuple[Int64Array, ...]  # a group each: [T]
    block_tables: tuple[Int32Array, ...]  # a group each: [S, max_blocks]
    logits_rows: Int32Array  # [R], indices into T, ascending
    sampling: tuple[RowSampling, ...]  # R of them


class RowLogprobs(NamedTuple):
    """Raw log-probabilities of one row: the chosen token's, its rank (1 = best), the best k."""

    chosen: float
    rank: int
    top_ids: Int32Array  # [k], best first; equal values: lower id first
    top_values: Float32Array  # [k]


class StepOutput(NamedTuple):
    """token_ids: [R], sampled or the row's target. logprobs: R entries, None where not wanted."""

    token_ids: Int32Array
    logprobs: tuple[RowLogprobs | None, ...]


class Step(Protocol):
    """A step that is running."""

    def finish(self, masks: Mapping[int, Int32Array] | None = None) -> StepOutput:
        """Wait, sample and return. Called once.

        masks: row index r (0 <= r < R) -> allowed tokens of the row as packed bits
        [ceil(vocab_size / 32)], lowest bit first; rows that are absent are unconstrained.
        """
        ...


@dataclass(frozen=True, slots=True)
class OpTime:
    """Time spent in one operation of a step's program: name as in the table of operations."""

    name: str
    detail: str
    start_s: float
    duration_s: float


class Backend(Protocol):
    """Runs the steps of one model. Called from one thread."""

    name: str
    cache_groups: tuple[CacheGroup, ...]
    vocab_size: int  # ids the sampler may draw; further rows of logits are never looked at

    def wait_loaded(self) -> None:
        """Return when the weights are loaded; raise ConfigError or MemoryError for what failed."""
        ...

    def stop_loading(self) -> None:
        """Give the loading up, from any thread: `wait_loaded` then returns or raises soon."""
        ...

    def allocate_cache(self, num_blocks: int, block_size: int) -> None:
        """Reserve cache memory for every group; forgets what was cached."""
        ...

    def start(self, batch: Batch) -> Step:
        """Begin a step. An exception here or in `finish` fails the step's requests only."""
        ...

    def profile(self, enabled: bool) -> list[OpTime]:
        """Return and clear what was recorded so far; then record or stop recording."""
        ...
