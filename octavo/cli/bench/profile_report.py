"""A profile as JSON values, and as tables for people made of the same values."""

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.cli.bench.operations import Figures, Measured

LEGEND = """\
ms: in all calls of a step. share: of the operations together. GB/s: bytes of the matrix as it is
held, counted once a step. GMAC/s: multiply-adds. Sampling is part of the step and no operation.
"""


def as_json(settings: Mapping[str, Any], measured: Sequence[Measured]) -> dict[str, Any]:
    """The settings, and one entry a workload. Times are milliseconds of one step."""
    return {**settings, "workloads": [_workload(one) for one in measured]}


def _workload(measured: Measured) -> dict[str, Any]:
    longest_first = sorted(measured.operations, key=lambda figures: -figures.seconds)
    return {
        "name": measured.workload.name,
        "steps": len(measured.workload.steps),
        "tokens_per_step": measured.workload.tokens,
        "step_ms": measured.step_s * 1e3,
        "profiled_step_ms": measured.profiled_step_s * 1e3,
        "operations_ms": measured.operations_s * 1e3,
        "operations": [_operation(one, measured.operations_s) for one in longest_first],
    }


def _operation(figures: Figures, sum_s: float) -> dict[str, Any]:
    seconds = figures.seconds

    def per_second(amount: int | None) -> float | None:
        return amount / seconds / 1e9 if amount is not None and seconds else None

    return {
        "operation": str(figures.kind),
        "kind": figures.kind.name,
        "weight": figures.kind.weight or None,
        "calls": figures.calls,
        "ms": seconds * 1e3,
        "share": seconds / sum_s if sum_s else 0.0,
        "weight_bytes": figures.weight_bytes,
        "multiply_adds": figures.macs,
        "gb_per_s": per_second(figures.weight_bytes),
        "gmac_per_s": per_second(figures.macs),
    }


def as_text(profile: Mapping[str, Any]) -> str:
    """Tables of what `as_json` made."""
    tables = [_table(workload, profile["concurrency"]) for workload in profile["workloads"]]
    return "\n".join([_title(profile), "", *tables, LEGEND])


def _title(profile: Mapping[str, Any]) -> str:
    return (
        f"{profile['model']} on the {profile['backend']} backend, "
        f"--threads {profile['threads']}, --kv-cache-dtype {profile['kv_cache_dtype']}; "
        f"medians of {profile['repeat']}"
    )


def _table(workload: Mapping[str, Any], sequences: int) -> str:
    operations = workload["operations"]
    width = max(len("step, not profiled"), *(len(one["operation"]) for one in operations))
    each = workload["tokens_per_step"] // sequences
    lines = [
        f"{workload['name']}: {sequences} x {each} tokens a step, steps: {workload['steps']}",
        f"{'operation':{width}}  calls         ms   share     GB/s    GMAC/s",
    ]
    for one in operations:
        line = f"{one['operation']:{width}}  {one['calls']:5g} {one['ms']:10.3f}"
        rates = f"{_number(one['gb_per_s'], 8)}  {_number(one['gmac_per_s'], 8)}"
        lines.append(f"{line}  {one['share']:6.1%} {rates}".rstrip())
    for words, name in (
        ("operations", "operations_ms"),
        ("step, profiled", "profiled_step_ms"),
        ("step, not profiled", "step_ms"),
    ):
        lines.append(f"{words:{width}}        {workload[name]:10.3f}")
    return "\n".join([*lines, ""])


def _number(value: float | None, width: int) -> str:
    return " " * width if value is None else f"{value:{width}.2f}"
