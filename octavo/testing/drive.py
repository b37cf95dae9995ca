"""Drives a backend directly, without the engine: sequences, blocks and steps by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from octavo.backends.base import Backend, Batch, Float32Array, Int32Array, RowSampling, StepOutput


@dataclass(slots=True)
class Tracked:
    """One sequence: how many positions are in the cache, and the blocks that hold them."""

    computed: int = 0
    blocks: list[int] = field(default_factory=list)


class Driver:
    """A backend with `num_blocks` blocks, handed out in the order in which they are asked for.

    All cache groups get the same block numbers.
    """

    def __init__(self, backend: Backend, *, num_blocks: int = 64, block_size: int = 4) -> None:
        self.backend = backend
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, 0, -1))  # block 0 is padding, never given out
        self._sequences: dict[str, Tracked] = {}
        backend.allocate_cache(num_blocks, block_size)

    def fork(self, parent: str, child: str) -> int:
        """Start `child` on the full blocks of `parent`, shared; the positions it so has."""
        source = self._sequences[parent]
        shared = source.computed // self.block_size
        self._sequences[child] = Tracked(shared * self.block_size, source.blocks[:shared])
        return shared * self.block_size

    def step(
        self,
        work: Mapping[str, Sequence[int]],
        sampling: Mapping[str, Sequence[RowSampling]] | None = None,
        masks: Mapping[int, Int32Array] | None = None,
    ) -> StepOutput:
        """One step: append these tokens to these sequences.

        sampling: for a sequence how its last rows are sampled, one entry a row; by default the last
        row of each, greedy. The output's rows come in the order of `work`.
        """
        if sampling is None:
            sampling = {name: (RowSampling(),) for name in work}
        return self.backend.start(self._batch(work, sampling)).finish(masks)

    def scores(
        self, tokens: Sequence[int], chunks: Sequence[int], name: str = "scored"
    ) -> Float32Array:
        """Log-probabilities of the whole vocabulary after each token, [len(tokens), vocab_size].

        chunks: tokens a step; they must add up to the tokens.
        """
        every = RowSampling(num_logprobs=self.backend.vocab_size)
        out = np.empty((len(tokens), self.backend.vocab_size), np.float32)
        done = 0
        for count in chunks:
            chunk = tokens[done : done + count]
            step = self.step({name: chunk}, {name: [every] * len(chunk)})
            for row, logprobs in enumerate(step.logprobs, start=done):
                if logprobs is None:
                    raise ValueError("the backend kept no log-probabilities for a wanted row")
                out[row, logprobs.top_ids] = logprobs.top_values
            done += len(chunk)
        if done != len(tokens):
            raise ValueError(f"the chunks hold {done} tokens of {len(tokens)}")
        return out

    def generate(
        self, prompts: Mapping[str, Sequence[int]], count: int, sampling: RowSampling | None = None
    ) -> dict[str, list[int]]:
        """`count` tokens after each prompt, all sequences in one batch."""
        how = sampling or RowSampling()
        out: dict[str, list[int]] = {name: [] for name in prompts}
        work: Mapping[str, Sequence[int]] = prompts
        for position in range(count):
            rows = {name: (replace(how, position=position),) for name in work}
            ids = self.step(work, rows).token_ids.tolist()
            work = {name: [token] for name, token in zip(work, ids, strict=True)}
            for name, tokens in work.items():
                out[name] += tokens
        return out

    def _batch(
        self, work: Mapping[str, Sequence[int]], sampling: Mapping[str, Sequence[RowSampling]]
    ) -> Batch:
        positions: list[int] = []
        slots: list[int] = []
        starts: list[int] = [0]
        contexts: list[int] = []
        rows: list[int] = []
        tables: list[list[int]] = []
        for name, tokens in work.items():
            sequence = self._sequences.setdefault(name, Tracked())
            new = range(sequence.computed, sequence.computed + len(tokens))
            while len(sequence.blocks) * self.block_size < new.stop:
                sequence.blocks.append(self._free.pop())
            slots += [self._slot(sequence, position) for position in new]
            positions += new
            sequence.computed = new.stop
            starts.append(len(positions))
            contexts.append(new.stop)
            tables.append(list(sequence.blocks))
            rows += range(starts[-1] - len(sampling.get(name, ())), starts[-1])
        width = max(map(len, tables))
        table = np.array([blocks + [0] * (width - len(blocks)) for blocks in tables], np.int32)
        groups = len(self.backend.cache_groups)
        return Batch(
            request_ids=tuple(work),
            token_ids=np.array([t for tokens in work.values() for t in tokens], np.int32),
            positions=np.array([positions], np.int32),
            query_starts=np.array(starts, np.int32),
            context_lens=np.array(contexts, np.int32),
            slots=(np.array(slots, np.int64),) * groups,
            block_tables=(table,) * groups,
            logits_rows=np.array(rows, np.int32),
            sampling=tuple(row for name in work for row in sampling.get(name, ())),
        )

    def _slot(self, sequence: Tracked, position: int) -> int:
        block, offset = divmod(position, self.block_size)
        return sequence.blocks[block] * self.block_size + offset
