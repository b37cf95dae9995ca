"""A schedule as flat arrays, and which row of logits belongs to whom."""

from typing import NamedTuple

import numpy as np

from octavo.backends.base import Batch, RowSampling
from octavo.engine.kv import KVManager
from octavo.engine.request import Request
from octavo.engine.sampling import row_sampling, row_scoring
from octavo.engine.scheduler import Schedule, Scheduled


class Row(NamedTuple):
    """One row of logits. scored: the prompt position whose token it scores, or None: it samples."""

    request: Request
    scored: int | None


def build_batch(schedule: Schedule, kv: KVManager) -> tuple[Batch, list[Row]]:
    """Arrays of a step that is not empty; row r of the logits belongs to the r-th `Row`."""
    work = schedule.work
    counts = np.array([item.num_tokens for item in work], np.int32)
    query_starts = np.zeros(len(work) + 1, np.int32)
    np.cumsum(counts, out=query_starts[1:])
    num_tokens = int(query_starts[-1])
    token_ids = np.empty(num_tokens, np.int32)
    positions = np.empty((1, num_tokens), np.int32)
    slots = tuple(np.empty(num_tokens, np.int64) for _ in kv.pools)
    rows: list[Row] = []
    logits_rows: list[int] = []
    sampling: list[RowSampling] = []
    for item, begin in zip(work, query_starts[:-1].tolist(), strict=True):
        request, start, count = item
        end = begin + count
        token_ids[begin:end] = request.token_ids[start : start + count]
        span = np.arange(start, start + count, dtype=np.int32)
        positions[0, begin:end] = span
        for group, table in enumerate(kv.tables(request)):
            block_ids = table.ids[span // kv.block_size].astype(np.int64)
            slots[group][begin:end] = block_ids * kv.block_size + span % kv.block_size
        for row, offset, how in _rows_of(item):
            rows.append(row)
            logits_rows.append(begin + offset)
            sampling.append(how)
    batch = Batch(
        token_ids=token_ids,
        positions=positions,
        query_starts=query_starts,
        context_lens=np.array([item.start + item.num_tokens for item in work], np.int32),
        slots=slots,
        block_tables=tuple(_block_tables(work, kv, group) for group in range(len(kv.pools))),
        logits_rows=np.array(logits_rows, np.int32),
        sampling=tuple(sampling),
        request_ids=tuple(item.request.request_id for item in work),
    )
    return batch, rows


def _rows_of(item: Scheduled) -> list[tuple[Row, int, RowSampling]]:
    """(row, offset in the item's tokens, sampling) for each row of logits that it needs."""
    request, start, count = item
    found = []
    if request.prompt_logprobs is not None:
        # The logits at position p score the prompt's token at p + 1. A preempted request comes
        # here again; what is known already is not scored twice.
        for position in range(start, min(start + count, request.prompt_len - 1)):
            if request.prompt_logprobs[position + 1] is None:
                how = row_scoring(request, position + 1)
                found.append((Row(request, position + 1), position - start, how))
    if item.samples and request.params.max_tokens > 0:
        found.append((Row(request, None), count - 1, row_sampling(request)))
    return found


def _block_tables(work: list[Scheduled], kv: KVManager, group: int) -> np.ndarray:
    tables = [kv.tables(item.request)[group] for item in work]
    width = max(len(table.blocks) for table in tables)
    padded = np.zeros((len(tables), width), np.int32)
    for line, table in zip(padded, tables, strict=True):
        line[: len(table.blocks)] = table.ids[: len(table.blocks)]
    return padded
