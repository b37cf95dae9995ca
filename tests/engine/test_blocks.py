"""The block pool keeps its books under any sequence of operations."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.engine.blocks import Block, BlockPool, CacheCorrupt


class PoolMachine(RuleBasedStateMachine):
    """Holders take, share, publish and release; a model remembers who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(12)
        self.held: list[list[Block]] = []
        self.next_key = 0

    @rule(count=st.integers(0, 6))
    def allocate(self, count: int) -> None:
        if self.pool.can_allocate(count):
            blocks = self.pool.allocate(count)
            assert all(block.ref_count == 1 and block.key is None for block in blocks)
            self.held.append(blocks)
        else:
            with pytest.raises(RuntimeError):
                self.pool.allocate(count)

    @precondition(lambda self: any(self.held))
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from([b for blocks in self.held for b in blocks]))
        key = data.draw(st.integers(0, 8)).to_bytes(1, "big")
        self.pool.publish(block, key)
        found = self.pool.find(key)
        assert found is not None or block.key is not None

    @rule(number=st.integers(0, 8))
    def share(self, number: int) -> None:
        block = self.pool.find(number.to_bytes(1, "big"))
        if block is not None:
            self.pool.share([block])
            self.held.append([block])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.pool.release(self.held.pop(index)[::-1])

    @rule()
    def forget(self) -> None:
        assert self.pool.forget_all() == (not any(self.held))

    @invariant()
    def books_agree(self) -> None:
        counts = self.pool.counts()
        assert counts.free + counts.cached + counts.used == counts.total == 12
        held = [block for blocks in self.held for block in blocks]
        assert counts.used == len(set(held)) == self.pool.num_used
        for block in set(held):
            assert block.ref_count == held.count(block)


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPool = PoolMachine.TestCase


def test_evicts_the_least_recently_used_and_the_tail_before_the_head() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(4)
    for number, block in enumerate(blocks):
        pool.publish(block, bytes([number]))
    pool.release(blocks[::-1])
    (evicted,) = pool.allocate(1)
    assert evicted is blocks[3]
    assert pool.find(b"\x03") is None
    assert pool.find(b"\x00") is blocks[0]


def test_an_equal_block_that_is_findable_stays() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.publish(first, b"k")
    pool.publish(second, b"k")
    assert pool.find(b"k") is first
    assert second.key is None


def test_books_that_do_not_agree_are_noticed() -> None:
    pool = BlockPool(3)
    (block,) = pool.allocate(1)
    block.ref_count = 0  # lost: neither free nor in use
    with pytest.raises(CacheCorrupt, match="neither free nor in use"):
        pool.counts()
