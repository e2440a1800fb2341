"""The event bus, and a copy of the index that is kept from nothing but a snapshot and events."""

from random import Random

import pytest

from ratoon.cache.events import BlocksEvicted, BlocksStored, CacheReset, EventBatch, EventBus, Subscription
from ratoon.cache.manager import CacheManager
from ratoon.cache.stats import CacheStats
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import CacheGroupSpec


class Mirror:
    """The index as a follower elsewhere sees it: which blocks have which key."""

    def __init__(self, cache: CacheManager) -> None:
        self.cache = cache
        self.events: Subscription = cache.events.subscribe()
        self.num_restarts = 0
        self.restart()

    def restart(self) -> None:
        snapshot = self.cache.snapshot()
        self.next = snapshot.next_event
        self.epoch = snapshot.epoch
        self.keys = {block_id: (group, block_hash) for block_id, group, block_hash in snapshot.blocks}

    def follow(self) -> None:
        batch = self.events.read()
        if batch.num_missed:
            self.num_restarts += 1
            self.restart()
        for number, event in enumerate(batch.events, batch.first):
            if number >= self.next:
                self.apply(event)
                self.next = number + 1

    def apply(self, event: BlocksStored | BlocksEvicted | CacheReset) -> None:
        match event:
            case BlocksStored():
                for block_id, block_hash in zip(event.block_ids, event.block_hashes, strict=True):
                    self.keys[block_id] = event.group, block_hash
            case BlocksEvicted():
                for block_id, group, block_hash in zip(
                    event.block_ids, event.groups, event.block_hashes, strict=True
                ):
                    assert self.keys.pop(block_id) == (group, block_hash)
            case CacheReset():
                self.keys.clear()
        self.epoch = event.epoch


def serve(cache: CacheManager, number: int, tokens: list[int]) -> None:
    chain = HashChain(bytes(32), cache.block_size, tokens=tokens)
    assert cache.reserve(number, chain, len(tokens), cache.match(chain, len(tokens)))
    cache.commit(number, len(tokens))
    cache.release(number)


def test_a_snapshot_and_the_events_after_it_make_a_true_copy_of_the_index() -> None:
    cache = CacheManager([CacheGroupSpec(), CacheGroupSpec(3)], num_blocks=24, block_size=2)
    random = Random(7)
    early = Mirror(cache)
    late: Mirror | None = None
    for number in range(200):
        if random.random() < 0.02:
            cache.reset()
        serve(cache, number, [random.randrange(3) for _ in range(random.randint(2, 14))])
        late = late or (Mirror(cache) if number == 100 else None)
        if random.random() < 0.3:
            early.follow()
    assert late is not None
    for mirror in (early, late):
        mirror.follow()
        assert mirror.epoch == cache.epoch
        assert [(block_id, *mirror.keys[block_id]) for block_id in sorted(mirror.keys)] == list(
            cache.pool.keys()
        )
    assert early.num_restarts == 0


def stored(bus: EventBus, number: int) -> BlocksStored:
    bus.stored(0, [number], [bytes([number])])
    return BlocksStored(bus.epoch, 0, (number,), (bytes([number]),))


def test_every_follower_reads_every_event_at_its_own_pace() -> None:
    bus = EventBus(CacheStats(), 100)
    one, other = bus.subscribe(), bus.subscribe()
    first, second = stored(bus, 1), stored(bus, 2)
    assert one.read() == EventBatch(0, (first, second), 0)
    third = stored(bus, 3)
    assert other.read() == EventBatch(0, (first, second, third), 0)
    assert one.read() == EventBatch(2, (third,), 0)
    assert bus.subscribe().read() == EventBatch(3, (), 0)


def test_a_follower_that_reads_too_late_is_told_how_many_events_it_missed() -> None:
    bus = EventBus(CacheStats(), 2)
    slow, quick = bus.subscribe(), bus.subscribe()
    stored(bus, 1)
    assert quick.read().num_missed == 0
    events = [stored(bus, number) for number in range(2, 6)]
    assert slow.read() == EventBatch(3, tuple(events[-2:]), 3)
    assert quick.read() == EventBatch(3, tuple(events[-2:]), 2)
    assert slow.read() == EventBatch(5, (), 0)


def test_a_mirror_that_missed_events_starts_again_from_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratoon.cache.manager.EVENTS_KEPT", 3)
    cache = CacheManager([CacheGroupSpec()], num_blocks=12, block_size=2)
    mirror = Mirror(cache)
    for number in range(20):
        serve(cache, number, [number, number, number])
    mirror.follow()
    assert mirror.num_restarts == 1
    assert set(mirror.keys) == set(cache.pool.keyed_blocks())


def test_what_happened_is_counted_with_and_without_followers() -> None:
    bus = EventBus(stats := CacheStats(), 100)
    bus.stored(0, [1, 2], [b"a", b"b"])
    follower = bus.subscribe()
    bus.evicted([0], [1], [b"a"])
    assert bus.reset(1) == CacheReset(1, 1)
    assert follower.read() == EventBatch(0, (BlocksEvicted(0, (0,), (1,), (b"a",)), CacheReset(1, 1)), 0)
    follower.close()
    bus.stored(0, [3], [b"c"])
    assert bus.next_event == 2, "without followers nothing is recorded"
    assert (stats.num_stored_blocks, stats.num_evicted_blocks, stats.num_resets) == (3, 1, 1)
