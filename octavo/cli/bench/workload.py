"""Steps for a backend alone: all prompts in one step, then a token for each sequence a step."""

from dataclasses import dataclass

import numpy as np

from octavo.backends.base import Batch, Int32Array, RowSampling


@dataclass(frozen=True, slots=True)
class Sizes:
    """sequences: that run together. prompt_tokens, decode_tokens: of each of them."""

    sequences: int
    prompt_tokens: int
    decode_tokens: int

    @property
    def context(self) -> int:
        """Tokens of a sequence at its end."""
        return self.prompt_tokens + self.decode_tokens

    def num_blocks(self, block_size: int) -> int:
        """Cache blocks that all sequences need."""
        return self.sequences * -(-self.context // block_size)


@dataclass(frozen=True, slots=True)
class Workload:
    """Steps that are run one after the other; all have as many tokens and rows of logits.

    They write the same cache slots each time, so a workload may be run again.
    """

    name: str
    steps: tuple[Batch, ...]

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return len(self.steps[0].token_ids)

    @property
    def rows(self) -> int:
        """Rows of logits of a step."""
        return len(self.steps[0].logits_rows)


def make_workloads(
    sizes: Sizes, *, groups: int, block_size: int, vocab_size: int
) -> tuple[Workload, Workload]:
    """Prefill, and decode on what the prefill left in the cache. groups: of the cache.

    The tokens are arbitrary and known before: a draw is made from each row, and not used.
    """
    num_blocks = sizes.num_blocks(block_size)
    table = np.arange(num_blocks, dtype=np.int32).reshape(sizes.sequences, -1)
    steps = [
        _step(table, begin, end, groups, block_size, vocab_size)
        for begin, end in [
            (0, sizes.prompt_tokens),
            *((at, at + 1) for at in range(sizes.prompt_tokens, sizes.context)),
        ]
    ]
    return Workload("prefill", tuple(steps[:1])), Workload("decode", tuple(steps[1:]))


def _step(
    table: Int32Array, begin: int, end: int, groups: int, block_size: int, vocab_size: int
) -> Batch:
    """The positions from begin to end of every sequence; its last is sampled, greedily.

    table: [S, blocks], the blocks of each sequence.
    """
    sequences, count = len(table), end - begin
    span = np.arange(begin, end, dtype=np.int64)  # [count]
    slots = table[:, span // block_size].astype(np.int64) * block_size + span % block_size
    # Strides that are prime to usual vocabularies, so that tokens do not repeat soon.
    ids = (np.arange(sequences)[:, None] * 7919 + span * 31) % vocab_size
    return Batch(
        request_ids=tuple(map(str, range(sequences))),
        token_ids=ids.reshape(-1).astype(np.int32),
        positions=np.tile(span, sequences).astype(np.int32)[None],
        query_starts=np.arange(sequences + 1, dtype=np.int32) * np.int32(count),
        context_lens=np.full(sequences, end, np.int32),
        slots=(slots.reshape(-1),) * groups,
        block_tables=(table,) * groups,
        logits_rows=np.arange(1, sequences + 1, dtype=np.int32) * np.int32(count) - np.int32(1),
        sampling=(RowSampling(),) * sequences,
    )
