"""The native backend: hands the program to C++ once, then runs each step in one call."""

import os
from collections.abc import Callable, Mapping

from octavo import _native
from octavo.backends.base import (
    Batch,
    CacheGroup,
    Int32Array,
    OpTime,
    RowLogprobs,
    StepOutput,
)
from octavo.backends.cpus import usable_cpus
from octavo.backends.native_program import describe
from octavo.errors import ConfigError
from octavo.graph import CacheNeed, Program
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.mapped import release_pages

KV_DTYPES = {"auto": "float16", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}

ISA_VARIABLE = "OCTAVO_ISA"
ISAS = ("auto", "scalar", "avx2")


class NativeBackend:
    """Implements `base.Backend`.

    threads: of the kernels, the caller's included; 0: one a core that this process may use.
    isa: which form of the kernels runs; None: what OCTAVO_ISA says, else the fastest that the CPU
    executes.
    The weights are repacked by threads of their own, which the first step waits for; the checkpoint
    may be closed, its files stay mapped while they are needed. Weights of a type without kernels
    are dequantised if they can be decoded, and a line is logged.

    ConfigError: an unknown kv_dtype or isa. ModelFileError: a weight is missing, misshapen or of a
    type that is not decoded. MemoryError: the weights do not fit.
    """

    name = "native"

    def __init__(
        self,
        program: Program,
        checkpoint: Checkpoint,
        *,
        vocab_size: int,
        kv_dtype: str = "auto",
        threads: int = 0,
        isa: str | None = None,
    ) -> None:
        self.vocab_size = vocab_size
        self.cache_groups: tuple[CacheGroup, ...] = cache_groups(program, kv_dtype)
        self._program = program
        self._described = describe(program, checkpoint, vocab_size)
        self._executor = _native.Executor(
            self._described,
            threads or usable_cpus(),
            _isa(isa),
            KV_DTYPES[kv_dtype],
        )
        self._unpacked = [file.data for file in checkpoint.files]
        self._executor.begin_loading()
        self._steps = 0  # started so far: a step can be finished only while it is the last

    @property
    def weight_bytes(self) -> int:
        """Memory of the repacked weights, once they are loaded."""
        return self._executor.packed_bytes

    def wait_loaded(self) -> None:
        """Return when the weights are repacked and the files' pages given back to the system.

        Raises what went wrong with the repacking.
        """
        self._executor.finish_loading()
        self._described.forget_packed()
        while self._unpacked:
            release_pages(self._unpacked.pop())

    def stop_loading(self) -> None:
        """Give the repacking up; `wait_loaded` then raises RuntimeError, soon."""
        self._executor.abandon_loading()

    def allocate_cache(self, num_blocks: int, block_size: int) -> None:
        """Zeroed memory for every layer; the system hands it out when it is first written."""
        self._executor.allocate_cache(num_blocks, block_size)

    def start(self, batch: Batch) -> "NativeStep":
        """Compute the step up to the rows whose logits are wanted; the GIL is released meanwhile.

        IndexError or ValueError: the batch does not fit the program or the cache.
        """
        self._steps += 1
        self._executor.forward(
            len(self.cache_groups),
            batch.token_ids,
            batch.positions,
            batch.query_starts,
            batch.context_lens,
            batch.slots,
            batch.block_tables,
            batch.logits_rows,
        )
        serial = self._steps
        return NativeStep(self._executor, batch, lambda: serial == self._steps)

    def profile(self, enabled: bool) -> list[OpTime]:
        """As in `base.Backend`; start_s counts from the start of `time.monotonic`."""
        ops = self._program.ops
        return [
            OpTime(ops[op].name, ops[op].detail, start_s, duration_s)
            for op, start_s, duration_s in self._executor.profile(enabled)
        ]


class NativeStep:
    """A step whose hidden rows are known."""

    def __init__(
        self, executor: _native.Executor, batch: Batch, is_last: Callable[[], bool]
    ) -> None:
        self._executor = executor
        self._batch = batch
        self._is_last = is_last

    def finish(self, masks: Mapping[int, Int32Array] | None = None) -> StepOutput:
        """Compute the logits and sample every wanted row."""
        if not self._is_last():
            raise RuntimeError("this step's memory has been used by a later one")
        token_ids, rows = self._executor.sample(self._batch.sampling, masks)
        return StepOutput(token_ids, tuple(row and RowLogprobs(*row) for row in rows))


def cache_groups(program: Program, kv_dtype: str) -> tuple[CacheGroup, ...]:
    """The groups of a program's cache with numbers of this type. ConfigError: it is unknown."""
    if kv_dtype not in KV_DTYPES:
        raise ConfigError(
            f"--kv-cache-dtype {kv_dtype!r} is not known to the native backend; "
            f"choose one of {', '.join(KV_DTYPES)}"
        )
    return tuple(_cache_group(need, KV_DTYPES[kv_dtype]) for need in program.cache)


def _cache_group(need: CacheNeed, kv_name: str) -> CacheGroup:
    per_layer = 2 * need.kv_heads * need.head_dim * _ITEM_BYTES[kv_name]
    return CacheGroup(need.kind, need.layers, per_layer * len(need.layers))


def _isa(wanted: str | None) -> str:
    name = wanted or os.environ.get(ISA_VARIABLE) or "auto"
    known = set(_native.cpu_features()) | {"auto"}
    if name not in ISAS or name not in known:
        usable = ", ".join(isa for isa in ISAS if isa in known)
        raise ConfigError(f"{ISA_VARIABLE} is {name!r}; on this machine it may be {usable}")
    return name
