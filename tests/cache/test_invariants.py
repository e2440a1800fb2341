"""The checker accepts a busy cache and notices each way in which one can be broken."""

from collections.abc import Callable

import pytest

from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import CacheGroupSpec


def make_busy_cache() -> CacheManager:
    """Return a cache with blocks in every state, one of them idle because it is behind a window."""
    cache = CacheManager([CacheGroupSpec(), CacheGroupSpec(2)], num_blocks=12, block_size=2)
    chain = HashChain(bytes(32), 2, tokens=range(6))
    assert cache.reserve(1, chain, 6)
    cache.commit(1, 5)
    idle = HashChain(bytes(32), 2, tokens=range(50, 52))
    assert cache.reserve(2, idle, 2)
    cache.commit(2, 2)
    cache.release(2)
    return cache


def forget_reference(cache: CacheManager) -> None:
    cache.pool.ref_counts[cache.block_tables(1)[0][0]] = 0


def hold_free_block(cache: CacheManager) -> None:
    cache.pool.ref_counts[11] = 1


def queue_block_twice(cache: CacheManager) -> None:
    cache.pool._free.append(11)


def queue_used_block(cache: CacheManager) -> None:
    cache.pool._free[0] = cache.block_tables(1)[0][0]


def use_null_block(cache: CacheManager) -> None:
    cache.pool.ref_counts[0] = 1


def key_null_block(cache: CacheManager) -> None:
    cache.pool.store(0, [0], [b"key"], [b"tokens"])


def queue_null_block(cache: CacheManager) -> None:
    cache.pool._free.insert(0, 0)


def key_free_block(cache: CacheManager) -> None:
    cache.pool.store(0, [11], [b"key"], [b"tokens"])


def lose_key(cache: CacheManager) -> None:
    cache.pool.block_hashes[cache.block_tables(1)[0][0]] = None


def change_key(cache: CacheManager) -> None:
    cache.pool.block_hashes[cache.block_tables(1)[0][0]] = b"other"


def change_group(cache: CacheManager) -> None:
    cache.pool.block_groups[cache.block_tables(1)[0][0]] = 1


def change_tokens(cache: CacheManager) -> None:
    cache.pool.block_tokens[cache.block_tables(1)[0][0]] = b"other"


def lose_tokens(cache: CacheManager) -> None:
    cache.pool.block_tokens[cache.block_tables(1)[0][0]] = None


def forget_index_entry(cache: CacheManager) -> None:
    block_hash = cache.requests[1].chain.block_hashes[0]
    cache.pool.indexes[0].remove([block_hash], [cache.block_tables(1)[0][0]])


def key_unfilled_block(cache: CacheManager) -> None:
    block_id = cache.block_tables(1)[0][2]
    cache.pool.store(0, [block_id], [b"key"], [b"tokens"])


def change_table_silently(cache: CacheManager) -> None:
    cache.block_tables(1)
    cache.requests[1].ids[0].pop()


def shorten_one_table(cache: CacheManager) -> None:
    cache.pool.release([cache.requests[1].ids[0].pop()])
    cache.requests[1].touch()


def hold_block_behind_window(cache: CacheManager) -> None:
    cache.requests[1].ids[1][0] = cache.pool.allocate(1)[0]
    cache.requests[1].touch()


def miss_block_in_window(cache: CacheManager) -> None:
    cache.pool.release([cache.requests[1].ids[1][2]])
    cache.requests[1].ids[1][2] = 0
    cache.requests[1].touch()


def start_elsewhere_than_the_window(cache: CacheManager) -> None:
    cache.requests[1].first_kept[1] = 0


def fill_without_computing(cache: CacheManager) -> None:
    cache.requests[1].num_filled = 5


def compute_without_a_slot(cache: CacheManager) -> None:
    cache.requests[1].num_computed = 7


def announce_free_block(cache: CacheManager) -> None:
    cache.in_flight.announce(1, 0, [11], [b"key"], [b"tokens"])


def announce_committed_block(cache: CacheManager) -> None:
    cache.in_flight.announce(1, 0, [cache.block_tables(1)[0][0]], [b"key"], [b"tokens"])


def key_with_caching_off(cache: CacheManager) -> None:
    cache.is_caching = False


SABOTAGE = [
    forget_reference,
    hold_free_block,
    queue_block_twice,
    queue_used_block,
    use_null_block,
    key_null_block,
    queue_null_block,
    key_free_block,
    lose_key,
    change_key,
    change_group,
    change_tokens,
    lose_tokens,
    forget_index_entry,
    key_unfilled_block,
    change_table_silently,
    shorten_one_table,
    hold_block_behind_window,
    miss_block_in_window,
    start_elsewhere_than_the_window,
    fill_without_computing,
    compute_without_a_slot,
    announce_free_block,
    announce_committed_block,
    key_with_caching_off,
]


def test_a_busy_cache_is_accepted() -> None:
    cache = make_busy_cache()
    check_invariants(cache)
    assert cache.pool.num_idle
    assert cache.num_free_blocks > cache.pool.num_idle


@pytest.mark.parametrize("break_it", SABOTAGE, ids=lambda function: function.__name__)
def test_a_broken_cache_is_noticed(break_it: Callable[[CacheManager], None]) -> None:
    cache = make_busy_cache()
    break_it(cache)
    with pytest.raises(AssertionError):
        check_invariants(cache)
