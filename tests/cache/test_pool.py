"""The pool against a twin that keeps one plain list for the queue and one dictionary for each fact."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ratoon.cache.events import BlocksEvicted, BlocksStored, EventBus
from ratoon.cache.eviction import LeastRecentlyUsed
from ratoon.cache.pool import BlockPool
from ratoon.cache.stats import CacheStats


def make_pool(num_blocks: int, num_groups: int = 1) -> BlockPool:
    return BlockPool(num_blocks, num_groups, LeastRecentlyUsed(), EventBus(CacheStats(), 10))


class PoolMachine(RuleBasedStateMachine):
    """Random takings and returnings; `queue`, `refs` and `keys` are the twin."""

    @initialize(num_blocks=st.integers(2, 12))
    def start(self, num_blocks: int) -> None:
        self.stats = CacheStats()
        bus = EventBus(self.stats, 10)
        self.log = bus.subscribe()
        self.pool = BlockPool(num_blocks, 2, LeastRecentlyUsed(), bus)
        self.queue = list(range(1, num_blocks))
        self.refs = dict.fromkeys(range(num_blocks), 0)
        self.keys: dict[int, tuple[int, bytes]] = {}
        self.num_evicted = 0

    @rule(data=st.data())
    def allocate(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.queue)))
        expected, self.queue = self.queue[:count], self.queue[count:]
        self.log.read()
        assert self.pool.allocate(count) == expected
        evicted = [block_id for block_id in expected if block_id in self.keys]
        keys = [self.keys.pop(block_id) for block_id in evicted]
        self.num_evicted += len(evicted)
        groups, hashes = tuple(group for group, _ in keys), tuple(block_hash for _, block_hash in keys)
        told = (BlocksEvicted(0, groups, tuple(evicted), hashes),) if evicted else ()
        assert self.log.read().events == told
        self.refs.update(dict.fromkeys(expected, 1))

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        hits = data.draw(
            st.lists(st.sampled_from(sorted(self.keys)), unique=True) if self.keys else st.just([])
        )
        self.pool.pin(hits)
        for block_id in hits:
            self.refs[block_id] += 1
            if block_id in self.queue:
                self.queue.remove(block_id)

    @precondition(lambda self: any(self.refs.values()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        used = [block_id for block_id, refs in self.refs.items() if refs]
        returned = data.draw(st.lists(st.sampled_from(used), unique=True))
        self.pool.release(returned)
        for block_id in returned:
            self.refs[block_id] -= 1
            if not self.refs[block_id]:
                self.queue.insert(len(self.queue) if block_id in self.keys else 0, block_id)

    @rule(data=st.data(), group=st.integers(0, 1))
    def store(self, data: st.DataObject, group: int) -> None:
        bare = [block_id for block_id, refs in self.refs.items() if refs and block_id not in self.keys]
        filled = data.draw(st.lists(st.sampled_from(bare), unique=True) if bare else st.just([]))
        hashes = [data.draw(st.sampled_from([b"a", b"b", b"c"])) for _ in filled]
        self.log.read()
        self.pool.store(group, filled, hashes, [b"tokens of " + block_hash for block_hash in hashes])
        assert self.log.read().events == (BlocksStored(0, group, tuple(filled), tuple(hashes)),)
        self.keys.update({block_id: (group, key) for block_id, key in zip(filled, hashes, strict=True)})

    @rule()
    def drop_all_keys(self) -> None:
        assert self.pool.drop_all_keys() == len(self.keys)
        self.keys.clear()

    @invariant()
    def everything_is_as_in_the_twin(self) -> None:
        pool = self.pool
        assert list(pool.free_queue()) == self.queue
        assert pool.num_free == len(self.queue)
        assert pool.num_idle == len([block_id for block_id in self.queue if block_id in self.keys])
        assert pool.ref_counts == list(self.refs.values())
        assert pool.keyed_blocks() == sorted(self.keys)
        assert pool.num_keys == len(set(self.keys.values()))
        assert self.stats.num_evicted_blocks == self.num_evicted
        for block_id, (group, block_hash) in self.keys.items():
            assert block_id in pool.indexes[group].block_ids(block_hash)
            assert pool.block_tokens[block_id] == b"tokens of " + block_hash


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
test_the_pool_equals_its_twin: Any = PoolMachine.TestCase


def test_ids_are_handed_out_in_order_at_first() -> None:
    pool = make_pool(6)
    assert pool.allocate(2) == [1, 2]
    assert pool.allocate(3) == [3, 4, 5]
    assert pool.num_free == 0


def test_a_block_without_references_cannot_be_released() -> None:
    pool = make_pool(4)
    held = pool.allocate(2)
    pool.release(held[:1])
    with pytest.raises(ValueError, match="released"):
        pool.release(held)
    assert pool.ref_counts == [0, 0, 1, 0]


def test_the_null_block_cannot_be_released() -> None:
    with pytest.raises(ValueError, match="released"):
        make_pool(4).release([0])


def test_a_reused_block_loses_its_key_before_it_is_handed_out() -> None:
    pool = make_pool(2)
    (block_id,) = pool.allocate(1)
    pool.store(0, [block_id], [b"key"], [b"tokens"])
    pool.release([block_id])
    assert pool.allocate(1) == [block_id]
    assert pool.keyed_blocks() == []
    assert pool.block_tokens[block_id] is None
    assert pool.indexes[0].block_ids(b"key") == ()


def test_a_key_stays_until_its_last_block_goes() -> None:
    pool = make_pool(3)
    pool.store(0, pool.allocate(2), [b"key", b"key"], [b"tokens", b"tokens"])
    pool.release([1])
    pool.release([2])
    pool.allocate(1)
    assert pool.indexes[0].block_ids(b"key") == (2,)
    pool.allocate(1)
    assert pool.num_keys == 0


def test_two_groups_keep_the_same_hash_apart() -> None:
    pool = make_pool(3, num_groups=2)
    pool.store(0, pool.allocate(1), [b"key"], [b"tokens"])
    pool.store(1, pool.allocate(1), [b"key"], [b"tokens"])
    assert pool.num_keys == 2
    assert [index.block_ids(b"key") for index in pool.indexes] == [(1,), (2,)]
