"""Doubles whose cache slots hold token ids.

A double knows a sequence only by reading it back from the cache through the block table, so that
block tables, prefix hits, chunks, preemption and abort are truly exercised.
"""

import hashlib
import time
from collections.abc import Mapping

import numpy as np

from octavo.backends.base import (
    Batch,
    CacheGroup,
    Float32Array,
    Int32Array,
    OpTime,
    RowSampling,
    StepOutput,
)
from octavo.backends.sampler import sample

EMPTY_SLOT = -1


class SlotBackend:
    """Implements `octavo.backends.base.Backend`; subclasses say what follows a context."""

    name = "slots"
    cache_groups: tuple[CacheGroup, ...] = (CacheGroup("full", (0,), bytes_per_token=4),)

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._cache = np.empty(0, np.int32)
        self._block_size = 0
        self._profiling = False
        self._times: list[OpTime] = []

    def logits(self, request_id: str, context: list[int], how: RowSampling) -> Float32Array:
        """The row [vocab_size] after `context`, the whole sequence as the cache has it."""
        raise NotImplementedError

    def stop_loading(self) -> None:
        """Nothing is being loaded."""

    def wait_loaded(self) -> None:
        """There are no weights."""

    def allocate_cache(self, num_blocks: int, block_size: int) -> None:
        self._cache = np.full(num_blocks * block_size, EMPTY_SLOT, np.int32)
        self._block_size = block_size

    def start(self, batch: Batch) -> "SlotStep":
        began_s = time.perf_counter()
        self._cache[batch.slots[0]] = batch.token_ids
        owners = np.searchsorted(batch.query_starts, batch.logits_rows, side="right") - 1
        rows = np.zeros((len(batch.logits_rows), self.vocab_size), np.float32)
        for row, sequence in enumerate(owners.tolist()):
            end = int(batch.positions[0, batch.logits_rows[row]]) + 1
            context = self._context(batch.block_tables[0][sequence], end)
            rows[row] = self.logits(batch.request_ids[sequence], context, batch.sampling[row])
        if self._profiling:
            shape = f"{len(batch.request_ids)} sequences"
            self._times.append(OpTime("logits", shape, began_s, time.perf_counter() - began_s))
        return SlotStep(rows, batch.sampling)

    def profile(self, enabled: bool) -> list[OpTime]:
        recorded, self._times = self._times, []
        self._profiling = enabled
        return recorded

    def _context(self, block_table: Int32Array, length: int) -> list[int]:
        blocks = block_table.astype(np.int64)
        slots = (blocks[:, None] * self._block_size + np.arange(self._block_size)).ravel()
        context = self._cache[slots[:length]]
        if (context == EMPTY_SLOT).any():
            raise RuntimeError("a slot of the context was never written")
        return [int(token) for token in context]


class SlotStep:
    """Implements `octavo.backends.base.Step`."""

    def __init__(self, logits: Float32Array, rows: tuple[RowSampling, ...]) -> None:
        self._logits = logits
        self._rows = rows

    def finish(self, masks: Mapping[int, Int32Array] | None = None) -> StepOutput:
        return sample(self._logits, self._rows, masks)


class HashBackend(SlotBackend):
    """Logits are a hash of the whole context: one wrong token anywhere changes all that follows."""

    name = "hash"

    def logits(self, request_id: str, context: list[int], how: RowSampling) -> Float32Array:
        digest = hashlib.sha256(np.array(context, np.int32).tobytes()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))
        return generator.standard_normal(self.vocab_size, np.float32) * np.float32(2)
