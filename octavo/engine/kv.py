"""Block tables of requests: which blocks hold whose tokens, in every cache group.

A request's tokens [0, num_computed) are in its blocks. Of a prefix hit the blocks are shared, the
rest is its own:

    tokens   0 ........ hit ................ num_computed ... capacity
    blocks   [ shared  ][ own, being filled                         ]

Only full blocks whose step has succeeded are published for others to find.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from octavo.backends.base import CacheGroup, Int32Array
from octavo.engine.blocks import Block, BlockPool, PoolCounts, must
from octavo.engine.prefix import block_key, extend_hashes, root_hash
from octavo.engine.request import Request


class PrefixHit(NamedTuple):
    """Leading tokens that are cached already, and their blocks, a list for each group."""

    num_tokens: int
    blocks: tuple[list[Block], ...]


@dataclass(slots=True)
class BlockTable:
    """Blocks of one request in one group, in context order; `ids` is their array form."""

    blocks: list[Block]
    ids: Int32Array  # [at least len(blocks)], grown by doubling
    num_published: int = 0

    def extend(self, blocks: list[Block]) -> None:
        """Append blocks at the end of the context."""
        start, end = len(self.blocks), len(self.blocks) + len(blocks)
        if end > len(self.ids):
            grown = np.zeros(max(end, 2 * len(self.ids)), np.int32)
            grown[:start] = self.ids[:start]
            self.ids = grown
        self.ids[start:end] = [block.block_id for block in blocks]
        self.blocks += blocks


class KVManager:
    """The pools of all groups and the tables of all requests that hold blocks."""

    def __init__(
        self,
        groups: tuple[CacheGroup, ...],
        num_blocks: int,
        block_size: int,
        *,
        prefix_caching: bool,
        hash_seed: str | None = None,
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.prefix_caching = prefix_caching
        self.pools = tuple(BlockPool(num_blocks) for _ in groups)
        self._root = root_hash(hash_seed)
        self._tables: dict[Request, tuple[BlockTable, ...]] = {}

    # ------------------------------------------------------------------ asking

    @property
    def usage(self) -> float:
        """Share of blocks that requests hold, 0 to 1; a cached block that nobody uses is free."""
        return max(pool.num_used for pool in self.pools) / self.num_blocks

    def tables(self, request: Request) -> tuple[BlockTable, ...]:
        """The block tables of a request that holds blocks, a table for each group."""
        return self._tables[request]

    def find_prefix(self, request: Request) -> PrefixHit:
        """The longest run of cached blocks from the start, the same in every group.

        At least one token is left to compute, so that there are logits.
        """
        found: tuple[list[Block], ...] = tuple([] for _ in self.pools)
        if not self.prefix_caching or not request.reads_prefix_cache:
            return PrefixHit(0, found)
        self._extend_hashes(request)
        longest = (request.num_known - 1) // self.block_size
        for digest in request.block_hashes[:longest]:
            blocks = [pool.find(block_key(digest, g)) for g, pool in enumerate(self.pools)]
            if None in blocks:
                break
            for run, block in zip(found, blocks, strict=True):
                assert block is not None
                run.append(block)
        return PrefixHit(len(found[0]) * self.block_size, found)

    def can_admit(self, request: Request, hit: PrefixHit) -> bool:
        """Would all known tokens of a request without blocks fit, given this hit?"""
        wanted = self._num_blocks(request.num_known)
        for pool, blocks in zip(self.pools, hit.blocks, strict=True):
            revived = sum(block.ref_count == 0 for block in blocks)
            if not pool.can_allocate(wanted - len(blocks) + revived):
                return False
        return True

    def can_grow(self, request: Request, num_tokens: int) -> bool:
        """Is there room for the first `num_tokens` tokens of a request that holds blocks?"""
        return all(
            pool.can_allocate(self._missing(table, num_tokens))
            for pool, table in zip(self.pools, self._tables[request], strict=True)
        )

    # ------------------------------------------------------------------ acting

    def admit(self, request: Request, hit: PrefixHit) -> None:
        """Give a request without blocks its prefix hit. Asked before: `can_admit`."""
        tables = []
        for pool, blocks in zip(self.pools, hit.blocks, strict=True):
            pool.share(blocks)
            table = BlockTable([], np.zeros(self._num_blocks(request.num_known) + 1, np.int32))
            table.extend(blocks)
            table.num_published = len(blocks)
            tables.append(table)
        self._tables[request] = tuple(tables)

    def grow(self, request: Request, num_tokens: int) -> None:
        """Allocate up to the first `num_tokens` tokens. Asked before: `can_grow`, `can_admit`."""
        for pool, table in zip(self.pools, self._tables[request], strict=True):
            missing = self._missing(table, num_tokens)
            if missing > 0:
                table.extend(pool.allocate(missing))

    def publish(self, request: Request) -> None:
        """Make the full blocks findable whose tokens a finished step has computed."""
        if not self.prefix_caching:
            return
        full = request.num_computed // self.block_size
        tables = self._tables[request]
        if all(table.num_published >= full for table in tables):
            return
        self._extend_hashes(request)
        for group, (pool, table) in enumerate(zip(self.pools, tables, strict=True)):
            for index in range(table.num_published, full):
                key = block_key(request.block_hashes[index], group)
                pool.publish(table.blocks[index], key)
            table.num_published = full

    def free(self, request: Request) -> None:
        """Give back what the request holds, tail first; nothing when it holds nothing."""
        for pool, table in zip(self.pools, self._tables.pop(request, ()), strict=False):
            pool.release(table.blocks[::-1])

    def forget_all(self) -> bool:
        """Empty the prefix cache; refused (False) while a block is in use."""
        if any(pool.num_used for pool in self.pools):
            return False
        for pool in self.pools:
            pool.forget_all()
        return True

    def check(self) -> list[PoolCounts]:
        """Count every pool: free + cached + used = total, and `used` is what the tables hold.

        Raises CacheCorrupt. Walks every block.
        """
        counts = [pool.counts() for pool in self.pools]
        for group, (pool, count) in enumerate(zip(self.pools, counts, strict=True)):
            held = [b for tables in self._tables.values() for b in tables[group].blocks]
            must(len(set(held)) == count.used, "blocks in use are in no table")
            must(sum(b.ref_count for b in pool.blocks) == len(held), "references disagree")
        return counts

    # ------------------------------------------------------------------ inside

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _missing(self, table: BlockTable, num_tokens: int) -> int:
        return max(0, self._num_blocks(num_tokens) - len(table.blocks))

    def _extend_hashes(self, request: Request) -> None:
        extend_hashes(
            request.block_hashes,
            request.token_ids,
            self.block_size,
            self._root,
            request.cache_salt,
        )
