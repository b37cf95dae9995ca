"""The reference backend: NumPy and float32, slow and obvious. It defines what is right."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Batch, CacheGroup, Float32Array, Int32Array, OpTime, StepOutput
from octavo.backends.numpy_cache import PagedLayer, cache_group, kv_numpy_dtype, paged_layers
from octavo.backends.sampler import sample
from octavo.errors import ModelFileError
from octavo.graph import OPS, Op, Program
from octavo.graph.semantics import attention
from octavo.weights.checkpoint import Checkpoint

_log = logging.getLogger(__name__)
_LOG_INTERVAL_S = 2.0


class ReferenceBackend:
    """Implements `base.Backend`. All weights are decoded to float32 once, here.

    A row's numbers do not depend on what else is in the batch, as far as NumPy's matrix-vector
    products do not. ConfigError: an unknown kv_dtype. ModelFileError: a weight is missing or
    misshapen.
    """

    name = "reference"

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, NDArray[Any]] | Checkpoint,
        *,
        vocab_size: int,
        kv_dtype: str = "auto",
    ) -> None:
        self.vocab_size = vocab_size
        self._program = program
        self._kv_dtype = kv_numpy_dtype(kv_dtype)
        self.cache_groups: tuple[CacheGroup, ...] = tuple(
            cache_group(need, self._kv_dtype) for need in program.cache
        )
        self._weights = _decode(program, weights)
        self._layers: Mapping[int, tuple[int, PagedLayer]] = {}
        self._last_uses = _last_uses(program)
        self._times: list[OpTime] = []
        self._profiling = False

    def wait_loaded(self) -> None:
        """They were decoded at once."""

    def stop_loading(self) -> None:
        """Nothing is being loaded."""

    def allocate_cache(self, num_blocks: int, block_size: int) -> None:
        """Zeroed memory for every layer; the system hands it out when it is first written."""
        self._layers = {}  # free the old memory first
        self._layers = paged_layers(self._program.cache, num_blocks, block_size, self._kv_dtype)

    def start(self, batch: Batch) -> "ReferenceStep":
        """Compute the step's logits, before returning."""
        values: dict[int, NDArray[Any]] = {
            self._program.inputs["token_ids"].id: batch.token_ids,
            self._program.inputs["positions"].id: batch.positions,
            self._program.inputs["logits_rows"].id: batch.logits_rows,
        }
        for op, unneeded in zip(self._program.ops, self._last_uses, strict=True):
            start_s = time.perf_counter()
            inputs = [values[value.id] for value in op.inputs]
            values[op.output.id] = self._run(op, inputs, batch)
            for value_id in unneeded:
                del values[value_id]
            if self._profiling:
                duration_s = time.perf_counter() - start_s
                self._times.append(OpTime(op.name, op.detail, start_s, duration_s))
        logits = values[self._program.outputs["logits"].id]
        return ReferenceStep(logits[:, : self.vocab_size], batch)

    def profile(self, enabled: bool) -> list[OpTime]:
        """As in `base.Backend`; start_s counts from the start of `time.perf_counter`."""
        times, self._times = self._times, []
        self._profiling = enabled
        return times

    def _run(self, op: Op, inputs: list[NDArray[Any]], batch: Batch) -> NDArray[Any]:
        if op.name == "attention":
            return self._attend(op, inputs, batch)
        meaning = OPS[op.name].meaning
        if meaning is None:
            raise NotImplementedError(f"the reference backend cannot run {op.name}")
        result: NDArray[Any] = meaning(*inputs, *(self._weights[w] for w in op.weights), **op.attrs)
        return result

    def _attend(self, op: Op, inputs: list[NDArray[Any]], batch: Batch) -> Float32Array:
        """Write this step's keys and values, then attend sequence by sequence from the cache."""
        q, k, v = inputs
        group, memory = self._layers[op.attrs["layer"]]
        memory.write(batch.slots[group], k, v.reshape(k.shape))
        out = np.empty((q.shape[0], q.shape[1] * q.shape[2]), np.float32)
        for s, context in enumerate(batch.context_lens):
            rows = slice(batch.query_starts[s], batch.query_starts[s + 1])
            keys, values = memory.read(batch.block_tables[group][s], int(context))
            scale, window = op.attrs["scale"], op.attrs["window"]
            out[rows] = attention(q[rows], keys, values, scale=scale, window=window)
        return out


class ReferenceStep:
    """A step whose logits [R, vocab_size] are known."""

    def __init__(self, logits: Float32Array, batch: Batch) -> None:
        self._logits = logits
        self._batch = batch

    def finish(self, masks: Mapping[int, Int32Array] | None = None) -> StepOutput:
        """Sample every wanted row."""
        return sample(self._logits, self._batch.sampling, masks)


def _last_uses(program: Program) -> tuple[tuple[int, ...], ...]:
    """For each operation the ids of the values that nothing after it reads."""
    kept = {value.id for value in program.outputs.values()}
    last = {value.id: i for i, op in enumerate(program.ops) for value in (*op.inputs, op.output)}
    ended: list[list[int]] = [[] for _ in program.ops]
    for value_id, use in last.items():
        if value_id not in kept:
            ended[use].append(value_id)
    return tuple(map(tuple, ended))


def _decode(
    program: Program, weights: Mapping[str, NDArray[Any]] | Checkpoint
) -> dict[str, Float32Array]:
    """Every weight of the program, float32 and row-major in memory, none a view of a file."""
    source = weights if isinstance(weights, Mapping) else weights.tensors
    decoded: dict[str, Float32Array] = {}
    said_s = time.monotonic()
    for count, (name, shape) in enumerate(program.weights.items()):
        tensor = source.get(name)
        if tensor is None:
            raise ModelFileError(f"tensor {name} is missing")
        array = tensor if isinstance(tensor, np.ndarray) else tensor.float32()
        if array.shape != shape:
            raise ModelFileError(f"tensor {name} is {list(array.shape)}; it must be {list(shape)}")
        kept = np.require(array, np.float32, ["C_CONTIGUOUS", "ALIGNED"])
        # What is read-only may be the user's mapped file, which may change or be truncated.
        decoded[name] = kept if kept.flags.writeable else kept.copy()
        if time.monotonic() - said_s > _LOG_INTERVAL_S:
            said_s = time.monotonic()
            _log.info("decoded %d of %d tensors", count + 1, len(program.weights))
    return decoded
