"""Marked blocks leave after all others until their time is over, tails first, within a tenant's share."""

from ratoon.cache.eviction.lru import LeastRecentlyUsed
from ratoon.cache.eviction.retaining import Mark, Retaining
from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.cache.stats import CacheStats
from ratoon.identity.hash_chain import HashChain
from ratoon.request.retention import Retention
from ratoon.spec.cache_group import CacheGroupSpec


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(max_marked: int = 100) -> tuple[Retaining, Clock, CacheStats]:
    clock, stats = Clock(), CacheStats()
    return Retaining(LeastRecentlyUsed(), max_marked, clock, stats), clock, stats


def test_marked_blocks_go_after_unmarked_ones_the_earliest_end_and_the_tail_first() -> None:
    policy, _, _ = make()
    policy.mark([3, 2, 1], Mark("a", 60.0))
    policy.mark([5, 4], Mark("a", 30.0))
    policy.add([3, 2, 1])
    policy.add([5, 4])
    policy.add([7, 6])
    assert list(policy) == [7, 6, 5, 4, 3, 2, 1]
    assert policy.evict(3) == [7, 6, 5]
    assert policy.evict(4) == [4, 3, 2, 1]
    assert len(policy) == 0


def test_when_their_time_is_over_they_queue_behind_what_is_unmarked() -> None:
    policy, clock, _ = make()
    policy.mark([2, 1], Mark("a", 10.0))
    policy.add([2, 1])
    policy.add([3])
    clock.now = 10.0
    policy.add([4])
    assert list(policy) == [3, 4, 2, 1]
    assert policy.evict(4) == [3, 4, 2, 1]


def test_a_mark_whose_time_ends_while_its_block_is_in_use_does_nothing() -> None:
    policy, clock, _ = make()
    policy.mark([1], Mark("a", 10.0))
    clock.now = 11.0
    policy.add([1])
    policy.add([2])
    assert policy.evict(1) == [1]


def test_a_use_keeps_the_mark_and_a_later_end_replaces_it() -> None:
    policy, _, stats = make()
    policy.mark([1], Mark("a", 10.0))
    policy.add([1])
    policy.remove([1])
    policy.mark([1], Mark("a", 50.0))
    policy.mark([2], Mark("a", 20.0))
    policy.mark([2], Mark("a", 15.0))
    policy.add([1])
    policy.add([2])
    assert list(policy) == [2, 1]
    assert (stats.num_retained_blocks, stats.num_retained_hit_blocks) == (2, 1)


def test_an_evicted_block_comes_back_without_its_mark() -> None:
    policy, _, _ = make()
    policy.mark([1], Mark("a", 10.0))
    policy.add([1])
    assert policy.evict(1) == [1]
    policy.add([1, 2])
    assert list(policy) == [1, 2]
    assert list(policy.inner) == [1, 2]


def test_a_tenant_marks_no_more_than_its_share_and_begins_with_the_prefix() -> None:
    policy, clock, _ = make(max_marked=2)
    policy.mark([3, 2, 1], Mark("a", 10.0))
    policy.mark([5, 4], Mark("b", 10.0))
    policy.add([3, 2, 1])
    policy.add([5, 4])
    assert list(policy.inner) == [3]
    clock.now = 10.0
    policy.mark([7, 6], Mark("a", 20.0))
    policy.add([7, 6])
    assert list(policy) == [3, 2, 1, 5, 4, 7, 6]


def cache_of(num_blocks: int, clock: Clock) -> CacheManager:
    return CacheManager([CacheGroupSpec()], num_blocks=num_blocks, block_size=4, clock=clock)


def serve(
    cache: CacheManager, request_id: int, tokens: range, retention: Retention | None = None, tenant: str = ""
) -> int:
    chain = HashChain(bytes(32), 4, tokens=tokens)
    match = cache.match(chain, len(tokens))
    assert cache.reserve(request_id, chain, len(tokens), match)
    cache.commit(request_id, len(tokens))
    cache.release(request_id, tenant, retention)
    check_invariants(cache)
    return match.num_cached_tokens


def test_a_request_with_retention_keeps_its_beginning_while_others_pass() -> None:
    clock = Clock()
    cache = cache_of(17, clock)
    kept = range(16)
    serve(cache, 1, kept, Retention(num_tokens=9, seconds=300), "a")
    for number in range(2, 20):
        serve(cache, number, range(100 * number, 100 * number + 16))
    assert serve(cache, 20, kept) == 8, "two full blocks were marked"
    assert cache.stats.num_retained_blocks == 2
    assert cache.stats.num_retained_hit_blocks == 2
    clock.now = 301.0
    for number in range(21, 40):
        serve(cache, number, range(100 * number, 100 * number + 16))
    assert serve(cache, 40, kept) == 0


def test_marks_cover_at_most_the_share_of_the_pool_and_a_reset_forgets_them() -> None:
    cache = cache_of(17, Clock())  # a quarter of the pool is 4 blocks
    serve(cache, 1, range(48), Retention(48, 300), "a")
    assert cache.stats.num_retained_blocks == 4
    cache.reset()
    serve(cache, 2, range(64))
    assert serve(cache, 3, range(100, 164)) == 0, "nothing kept the pool from being taken"
