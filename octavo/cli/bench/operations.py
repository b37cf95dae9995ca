"""Times the operations of a program, those of all layers together."""

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.backends.base import Backend, OpTime
from octavo.cli.bench.workload import Workload
from octavo.graph import Op, Program

LINEAR = ("linear", "logits")  # the operations that multiply by a matrix


class Kind(NamedTuple):
    """What operations of different layers have in common. weight: "" for those without."""

    name: str
    weight: str

    def __str__(self) -> str:
        return f"{self.name} {self.weight}".rstrip()


@dataclass(frozen=True, slots=True)
class Figures:
    """One kind of operation in one step.

    calls: times that it was run. seconds: in all of them. weight_bytes: of the matrices, each
    counted once a step however often it is read; macs: multiply-adds. Both None where no matrix is
    multiplied by.
    """

    kind: Kind
    calls: float
    seconds: float
    weight_bytes: int | None
    macs: int | None


@dataclass(frozen=True, slots=True)
class Measured:
    """A workload's step: medians over the repeats, in seconds.

    step_s: unprofiled, from the batch to the sampled tokens. profiled_step_s: the same while each
    operation is timed. operations: in the order of the program.
    """

    workload: Workload
    step_s: float
    profiled_step_s: float
    operations: tuple[Figures, ...]

    @property
    def operations_s(self) -> float:
        """All operations together. The sampler is none of them."""
        return sum(figures.seconds for figures in self.operations)


def measure(
    backend: Backend,
    program: Program,
    workloads: Sequence[Workload],
    weight_bytes: Mapping[str, int],
    repeat: int,
) -> tuple[Measured, ...]:
    """Run the workloads `repeat` times, in turn unprofiled and profiled, after once to warm up.

    The workloads are run in their order, as a later one may read what an earlier one cached.
    weight_bytes: bytes of each matrix of the program as the backend holds it.
    """
    for workload in workloads:
        _seconds_a_step(backend, workload)
    plain: list[list[float]] = [[] for _ in workloads]
    profiled: list[list[float]] = [[] for _ in workloads]
    times: list[list[list[OpTime]]] = [[] for _ in workloads]
    for _ in range(repeat):
        for i, workload in enumerate(workloads):
            plain[i].append(_seconds_a_step(backend, workload))
        for i, workload in enumerate(workloads):
            backend.profile(True)
            try:
                profiled[i].append(_seconds_a_step(backend, workload))
            finally:
                recorded = backend.profile(False)
            times[i].append(recorded)
    return tuple(
        Measured(
            workload,
            statistics.median(plain[i]),
            statistics.median(profiled[i]),
            figures_of(program, workload, times[i], weight_bytes),
        )
        for i, workload in enumerate(workloads)
    )


def figures_of(
    program: Program,
    workload: Workload,
    repeats: Sequence[Sequence[OpTime]],
    weight_bytes: Mapping[str, int],
) -> tuple[Figures, ...]:
    """What was recorded in each repeat of a workload, by kind.

    Every kind of the program has an entry. Operations that a backend adds stand at the end.
    """
    by_kind: dict[Kind, list[Op]] = defaultdict(list)
    for op in program.ops:
        by_kind[_kind(op.name, op.detail)].append(op)
    seconds: dict[Kind, list[float]] = {kind: [0.0] * len(repeats) for kind in by_kind}
    calls: dict[Kind, int] = dict.fromkeys(by_kind, 0)
    for i, times in enumerate(repeats):
        for op_time in times:
            kind = _kind(op_time.name, op_time.detail)
            seconds.setdefault(kind, [0.0] * len(repeats))[i] += op_time.duration_s
            calls[kind] = calls.get(kind, 0) + 1
    steps = len(workload.steps)
    return tuple(
        Figures(
            kind,
            calls[kind] / (steps * len(repeats)),
            statistics.median(values) / steps,
            *_matrix_figures(by_kind.get(kind, []), workload, weight_bytes),
        )
        for kind, values in seconds.items()
    )


def _matrix_figures(
    ops: Sequence[Op], workload: Workload, weight_bytes: Mapping[str, int]
) -> tuple[int | None, int | None]:
    """(weight bytes, multiply-adds) of one step of these operations, if they are linears."""
    if not ops or ops[0].name not in LINEAR:
        return None, None
    macs = 0
    for op in ops:
        tokens = {"T": workload.tokens, "R": workload.rows}[str(op.output.shape[0])]
        macs += tokens * int(op.inputs[0].shape[-1]) * int(op.output.shape[-1])
    return sum(weight_bytes[op.weights[0]] for op in ops), macs


def _kind(name: str, detail: str) -> Kind:
    """Of the full name of a weight its last part says what it is: q_proj.weight of any layer."""
    module = detail.removesuffix(".weight")
    return Kind(name, module.rpartition(".")[2] if module != detail else "")


def _seconds_a_step(backend: Backend, workload: Workload) -> float:
    began = time.perf_counter()
    for batch in workload.steps:
        backend.start(batch).finish()
    return (time.perf_counter() - began) / len(workload.steps)
