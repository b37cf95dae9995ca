"""Reference-counted KV blocks. Knows nothing of requests; of tokens only their hashes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class CacheCorrupt(RuntimeError):
    """The books of the cache do not agree: an error of ours."""


def must(true: bool, message: str) -> None:
    """Raise CacheCorrupt unless `true`."""
    if not true:
        raise CacheCorrupt(message)


class Block:
    """One block of cache memory.

    `key` is set while the content is findable. `prev` and `next` link the block into the free queue
    when nobody refers to it.
    """

    __slots__ = ("block_id", "key", "next", "prev", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.key: bytes | None = None
        self.prev: Block | None = None
        self.next: Block | None = None

    def __repr__(self) -> str:
        return f"Block({self.block_id}, refs={self.ref_count}, cached={self.key is not None})"


class FreeQueue:
    """Blocks that nobody refers to, least recently used first; any of them leaves in O(1).

    The links live in the blocks. A sentinel closes the ring, so that no end is special.
    """

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._ring = Block(-1)
        self._ring.prev = self._ring.next = self._ring
        self._length = 0
        for block in blocks:
            self.append(block)

    def __len__(self) -> int:
        return self._length

    def append(self, block: Block) -> None:
        """Add at the end that is evicted last."""
        last = self._ring.prev
        assert last is not None
        last.next, block.prev = block, last
        block.next, self._ring.prev = self._ring, block
        self._length += 1

    def remove(self, block: Block) -> None:
        """Take out a block from anywhere."""
        before, after = block.prev, block.next
        assert before is not None
        assert after is not None
        before.next, after.prev = after, before
        block.prev = block.next = None
        self._length -= 1

    def popleft(self) -> Block:
        """Take out the least recently used."""
        first = self._ring.next
        assert first is not None
        self.remove(first)
        return first

    def __iter__(self) -> Iterator[Block]:
        block = self._ring.next
        while block is not self._ring:
            assert block is not None
            yield block
            block = block.next


class PoolCounts(NamedTuple):
    """free: nobody refers to it and its content is forgotten; cached: free to take, but findable;
    used: referred to. They add up to total."""

    free: int
    cached: int
    used: int
    total: int


class BlockPool:
    """All blocks of one cache group: allocation, sharing, eviction."""

    def __init__(self, num_blocks: int) -> None:
        self.blocks = [Block(i) for i in range(num_blocks)]
        self._free = FreeQueue(self.blocks)
        self._by_key: dict[bytes, Block] = {}

    @property
    def num_used(self) -> int:
        """Blocks that somebody refers to."""
        return len(self.blocks) - len(self._free)

    def can_allocate(self, count: int) -> bool:
        """Would `allocate(count)` succeed?"""
        return count <= len(self._free)

    def allocate(self, count: int) -> list[Block]:
        """Take `count` blocks, least recently used first; what they held is forgotten."""
        if not self.can_allocate(count):
            raise RuntimeError(f"{count} blocks wanted, {len(self._free)} are free")
        taken = [self._free.popleft() for _ in range(count)]
        for block in taken:
            self._forget(block)
            block.ref_count = 1
        return taken

    def find(self, key: bytes) -> Block | None:
        """The block that holds the content of this key."""
        return self._by_key.get(key)

    def share(self, blocks: Iterable[Block]) -> None:
        """Refer to blocks that `find` returned; they cannot be evicted until released."""
        for block in blocks:
            if block.ref_count == 0:
                self._free.remove(block)
            block.ref_count += 1

    def publish(self, block: Block, key: bytes) -> None:
        """Make a full block findable. When an equal one already is, that one stays."""
        if block.key is None and key not in self._by_key:
            block.key = key
            self._by_key[key] = block

    def release(self, blocks: Sequence[Block]) -> None:
        """Drop one reference each; blocks without any join the free queue in the given order.

        Give a sequence's blocks tail first: a parent must outlive its children, because a child
        whose parent is gone can never be found again.
        """
        for block in blocks:
            block.ref_count -= 1
            if block.ref_count == 0:
                self._free.append(block)

    def forget_all(self) -> bool:
        """Forget every cached content; refused (False) while a block is in use."""
        if self.num_used:
            return False
        for block in list(self._by_key.values()):
            self._forget(block)
        return True

    def counts(self) -> PoolCounts:
        """Walk the whole pool and count; raises CacheCorrupt where the books do not agree."""
        queued = list(self._free)
        used = [b for b in self.blocks if b.ref_count > 0]
        keyed = sum(b.key is not None for b in self.blocks)
        must(len(queued) == len(self._free), "free queue: length and links disagree")
        must(all(b.ref_count == 0 for b in queued), "a block in use is in the free queue")
        must(all(b.ref_count >= 0 for b in self.blocks), "a block was released too often")
        must(len(queued) + len(used) == len(self.blocks), "a block is neither free nor in use")
        must(
            all(block.key == key for key, block in self._by_key.items()),
            "the table points to a block of another key",
        )
        must(keyed == len(self._by_key), "a block has a key that the table does not know")
        cached = sum(b.key is not None for b in queued)
        return PoolCounts(len(queued) - cached, cached, len(used), len(self.blocks))

    def _forget(self, block: Block) -> None:
        if block.key is not None:
            del self._by_key[block.key]
            block.key = None
