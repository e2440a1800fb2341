"""What the manager promises, one promise at a time; `test_manager_machine` runs everything together."""

import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ratoon.identity.hash_chain
from ratoon.cache.events import BlocksEvicted, BlocksStored, CacheReset
from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.errors import InvalidParameterError
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import CacheGroupSpec

ROOT = bytes(32)


def make_cache(
    *windows: int | None, num_blocks: int = 32, block_size: int = 4, **settings: Any
) -> CacheManager:
    groups = [CacheGroupSpec(window) for window in windows or (None,)]
    return CacheManager(groups, num_blocks=num_blocks, block_size=block_size, **settings)


def make_chain(
    num_tokens: int, first: int = 0, extras: ExtraKeys | None = None, block_size: int = 4
) -> HashChain:
    return HashChain(ROOT, block_size, extras or ExtraKeys(), range(first, first + num_tokens))


def admit(cache: CacheManager, request_id: int, chain: HashChain) -> int:
    """Admit with all hits and slots for all tokens; return the cached tokens."""
    match = cache.match(chain, chain.num_tokens)
    assert cache.reserve(request_id, chain, chain.num_tokens, match)
    check_invariants(cache)
    return match.num_cached_tokens


def serve(cache: CacheManager, request_id: int, chain: HashChain) -> int:
    """Admit, compute, release; return the cached tokens."""
    cached = admit(cache, request_id, chain)
    cache.commit(request_id, chain.num_tokens)
    cache.release(request_id)
    check_invariants(cache)
    return cached


def equal_hashes(parent: bytes, before: bytes, blocks: bytes, width: int, after: bytes) -> list[bytes]:
    """Hash all blocks alike."""
    return [bytes(32)] * (len(blocks) // width)


def queue(cache: CacheManager) -> list[int]:
    return list(cache.pool.free_queue())


# Matching.


def test_an_empty_cache_matches_nothing() -> None:
    match = make_cache().match(make_chain(9), 9)
    assert (match.num_cached_tokens, match.num_blocks, match.block_ids) == (0, 0, ((),))
    assert match.limited_by == 0


def test_whole_blocks_of_a_served_prefix_are_cached() -> None:
    cache = make_cache()
    serve(cache, 1, make_chain(11))
    match = cache.match(make_chain(20), 20)
    assert (match.num_cached_tokens, match.block_ids) == (8, ((1, 2),))


def test_known_tokens_are_not_yet_a_hit_nor_are_computed_but_only_committed_ones() -> None:
    cache = make_cache()
    chain = make_chain(8)
    admit(cache, 1, chain)
    assert cache.match(make_chain(9), 9).num_blocks == 0
    cache.commit(1, 7)
    assert cache.match(make_chain(9), 9).num_blocks == 1
    cache.commit(1, 8)
    assert cache.match(make_chain(9), 9).num_blocks == 2


def test_a_full_hit_uses_every_block_and_leaves_one_token_to_run() -> None:
    cache = make_cache()
    serve(cache, 1, make_chain(8))
    match = cache.match(make_chain(8), 8)
    assert (match.num_cached_tokens, match.block_ids, match.limited_by) == (7, ((1, 2),), None)


def test_a_full_hit_takes_no_new_block_and_stores_nothing() -> None:
    cache = make_cache()
    serve(cache, 1, make_chain(8))
    stored = cache.stats.num_stored_blocks
    assert admit(cache, 2, make_chain(8)) == 7
    cache.commit(2, 8)
    assert cache.block_tables(2) == ((1, 2),)
    assert cache.stats.num_stored_blocks == stored


def test_a_prompt_of_one_token_in_blocks_of_one_is_a_full_hit_without_cached_tokens() -> None:
    cache = make_cache(block_size=1)
    chain = make_chain(1, block_size=1)
    serve(cache, 1, chain)
    match = cache.match(chain, 1)
    assert (match.num_blocks, match.num_cached_tokens) == (1, 0)
    assert cache.reserve(2, chain, 1, match)
    assert cache.block_tables(2) == ((1,),)


def test_other_extras_or_another_root_match_nothing() -> None:
    cache = make_cache()
    serve(cache, 1, make_chain(8))
    assert cache.match(make_chain(8, extras=ExtraKeys(salt="a")), 8).num_blocks == 0
    assert cache.match(HashChain(b"\1" * 32, 4, tokens=range(8)), 8).num_blocks == 0


def test_fewer_tokens_than_the_chain_has_can_be_matched() -> None:
    cache = make_cache()
    serve(cache, 1, make_chain(12))
    assert cache.match(make_chain(12), 9).num_cached_tokens == 8


def test_a_block_with_other_tokens_is_counted_logged_and_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ratoon.identity.hash_chain, "digest_chain", equal_hashes)
    cache = make_cache()
    serve(cache, 1, make_chain(8))
    assert cache.match(make_chain(8), 8).num_blocks == 1, "both blocks have one key; only the first is found"
    assert cache.stats.num_collisions == 1
    with caplog.at_level(logging.WARNING):
        assert cache.match(make_chain(8, first=50), 8).num_blocks == 0
    assert cache.stats.num_collisions == 2
    assert "collision" in caplog.text


def test_a_collision_with_a_block_in_flight_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratoon.identity.hash_chain, "digest_chain", equal_hashes)
    cache = make_cache()
    admit(cache, 1, make_chain(4))
    cache.announce(1, 4)
    assert cache.match(make_chain(5), 5).num_blocks == 1
    assert cache.match(make_chain(5, first=50), 5).num_blocks == 0
    assert cache.stats.num_collisions == 1


# Reserving.


def test_ids_are_handed_out_in_order_group_by_group() -> None:
    cache = make_cache(None, 64)
    admit(cache, 1, make_chain(10))
    assert cache.block_tables(1) == ((1, 2, 3), (4, 5, 6))


def test_a_refused_admission_changes_nothing() -> None:
    cache = make_cache(None, 64, num_blocks=12)
    serve(cache, 1, make_chain(8))
    before = (queue(cache), cache.pool.ref_counts.copy(), cache.pool.keyed_blocks())
    chain = make_chain(24)
    assert not cache.reserve(2, chain, 24, cache.match(chain, 24))
    assert (queue(cache), cache.pool.ref_counts, cache.pool.keyed_blocks()) == before
    with pytest.raises(KeyError):
        cache.block_tables(2)


def test_a_refused_growth_changes_nothing() -> None:
    cache = make_cache(num_blocks=4)
    admit(cache, 1, make_chain(8))
    table = cache.block_tables(1)
    assert not cache.reserve(1, cache.requests[1].chain, 17)
    assert cache.block_tables(1) is table
    assert queue(cache) == [3]


def test_an_allocation_never_eats_a_hit_of_any_group() -> None:
    cache = make_cache(None, 64, num_blocks=9)
    serve(cache, 1, make_chain(12))
    chain = make_chain(16)
    match = cache.match(chain, 16)
    assert cache.reserve(2, chain, 16, match)
    assert [table[:3] for table in cache.block_tables(2)] == [table[:3] for table in match.block_ids]
    check_invariants(cache)


def test_keep_free_blocks_are_left_over() -> None:
    cache = make_cache(num_blocks=6)
    assert not cache.reserve(1, make_chain(8), 8, keep_free=4)
    assert cache.reserve(1, make_chain(8), 8, keep_free=3)


def test_slots_may_be_reserved_for_tokens_that_are_not_known() -> None:
    cache = make_cache()
    chain = make_chain(4)
    assert cache.reserve(1, chain, 6)
    assert cache.block_tables(1) == ((1, 2),)


def test_the_tables_are_the_same_object_until_they_change() -> None:
    cache = make_cache()
    chain = make_chain(4)
    admit(cache, 1, chain)
    tables = cache.block_tables(1)
    cache.commit(1, 4)
    assert cache.block_tables(1) is tables
    chain.append([4])
    assert cache.reserve(1, chain, 5)
    assert cache.block_tables(1) == ((1, 2),)


def test_a_match_from_before_an_eviction_is_noticed() -> None:
    cache = make_cache(num_blocks=3)
    serve(cache, 1, make_chain(4))
    match = cache.match(make_chain(5), 5)
    serve(cache, 2, make_chain(8, first=50))
    with pytest.raises(AssertionError, match="out of date"):
        cache.reserve(3, make_chain(5), 5, match)


def test_blocks_for_counts_all_groups_and_the_window_of_a_chunk() -> None:
    cache = make_cache(None, 8, num_blocks=11)
    assert cache.num_usable_blocks == 10
    assert cache.blocks_for(20) == 10
    assert cache.blocks_for(21) == 12
    assert cache.blocks_for(40, max_chunk=4) == 10 + 4


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 5), st.integers(1, 12))
def test_a_request_alone_never_needs_more_than_blocks_for(
    num_tokens: int, window: int, block_size: int, max_chunk: int
) -> None:
    needed = make_cache(None, window, block_size=block_size).blocks_for(num_tokens, max_chunk)
    cache = make_cache(None, window, block_size=block_size, num_blocks=needed + 1)
    chain = make_chain(num_tokens, block_size=block_size)
    for start in range(0, num_tokens, max_chunk):
        end = min(num_tokens, start + max_chunk)
        assert cache.reserve(1, chain, end)
        cache.commit(1, end)


# Committing and releasing.


def test_equal_blocks_computed_twice_have_one_key_until_the_last_of_them_goes() -> None:
    cache = make_cache(num_blocks=4)
    for request_id in (1, 2):
        assert cache.reserve(request_id, make_chain(4), 4)
        cache.commit(request_id, 4)
    assert (cache.pool.keyed_blocks(), cache.pool.num_keys) == ([1, 2], 1)
    cache.release(1)
    assert cache.reserve(3, make_chain(8, first=50), 8)
    assert (cache.pool.keyed_blocks(), cache.pool.num_keys) == ([2], 1)
    assert cache.match(make_chain(5), 5).block_ids == ((2,),)


def test_a_freed_chain_is_evicted_from_its_tail() -> None:
    cache = make_cache(num_blocks=4)
    serve(cache, 1, make_chain(12))
    assert queue(cache) == [3, 2, 1]
    assert cache.reserve(2, make_chain(4, first=50), 4)
    assert cache.match(make_chain(13), 13).num_cached_tokens == 8


def test_groups_are_freed_together_depth_by_depth() -> None:
    cache = make_cache(None, 64, num_blocks=7)
    serve(cache, 1, make_chain(12))
    assert queue(cache) == [3, 6, 2, 5, 1, 4]


@pytest.mark.parametrize("windows", [(None,), (None, 64), (4, None)])
def test_releasing_an_admission_that_computed_nothing_leaves_the_queue_as_it_was(
    windows: tuple[int | None, ...],
) -> None:
    cache = make_cache(*windows)
    before = queue(cache)
    admit(cache, 1, make_chain(11))
    cache.release(1)
    assert queue(cache) == before


def test_blocks_without_a_key_are_reused_before_keyed_ones() -> None:
    cache = make_cache(num_blocks=6)
    serve(cache, 1, make_chain(9))
    assert queue(cache) == [3, 4, 5, 2, 1]


def test_a_shared_block_stays_until_its_last_holder_lets_go() -> None:
    cache = make_cache()
    admit(cache, 1, make_chain(5))
    cache.commit(1, 5)
    admit(cache, 2, make_chain(5))
    cache.release(1)
    assert cache.pool.ref_counts[1] == 1
    cache.release(2)
    assert cache.pool.ref_counts[1] == 0


def test_a_double_release_and_an_unknown_request_raise() -> None:
    cache = make_cache()
    admit(cache, 1, make_chain(4))
    cache.release(1)
    with pytest.raises(KeyError, match="request 1"):
        cache.release(1)
    with pytest.raises(KeyError, match="request 7"):
        cache.commit(7, 4)


def test_what_a_request_computes_without_writing_the_cache_stays_its_own() -> None:
    cache = make_cache()
    chain = make_chain(8)
    assert cache.reserve(1, chain, 8, write_cache=False)
    cache.announce(1, 8)
    assert cache.match(make_chain(9), 9).num_blocks == 0
    cache.commit(1, 8)
    assert cache.pool.num_keys == 0
    assert cache.num_committed(1) == 0


def test_committed_tokens_are_counted_in_full_blocks() -> None:
    cache = make_cache()
    admit(cache, 1, make_chain(11))
    assert cache.num_committed(1) == 0
    cache.commit(1, 10)
    assert cache.num_committed(1) == 8
    cache.reset()
    assert cache.num_committed(1) == 0


def test_without_prefix_caching_nothing_is_keyed_or_matched() -> None:
    cache = make_cache(None, 6, enable_prefix_caching=False)
    admit(cache, 1, make_chain(12))
    cache.announce(1, 12)
    cache.commit(1, 12)
    assert cache.pool.num_keys == 0
    assert cache.match(make_chain(13), 13).num_blocks == 0
    assert cache.block_tables(1)[1][:1] == (0,), "a window is let go with caching or without"


# Sliding windows.


def test_what_the_last_full_block_sees_is_kept_however_far_the_next_block_is_filled() -> None:
    cache = make_cache(6)
    chain = make_chain(12)
    admit(cache, 1, chain)
    for num_computed, first in ((8, 0), (11, 0), (12, 1)):
        cache.commit(1, num_computed)
        (table,) = cache.block_tables(1)
        assert table.count(0) == first
        check_invariants(cache)


def test_blocks_behind_the_window_are_let_go_and_stay_a_hit() -> None:
    cache = make_cache(None, 8)
    admit(cache, 1, make_chain(16))
    cache.commit(1, 16)
    assert cache.block_tables(1) == ((1, 2, 3, 4), (0, 0, 7, 8))
    assert cache.pool.keyed_blocks() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert cache.match(make_chain(7), 7).block_ids == ((1,), (5,))


def test_a_hit_in_a_sliding_group_takes_the_window_only() -> None:
    cache = make_cache(8)
    serve(cache, 1, make_chain(16))
    assert admit(cache, 2, make_chain(17)) == 16
    assert cache.block_tables(2) == ((0, 0, 3, 4, 5),)


def test_memory_of_a_sliding_group_stops_growing() -> None:
    cache = make_cache(8, num_blocks=5)
    chain = make_chain(1)
    for _ in range(100):
        assert cache.reserve(1, chain, chain.num_tokens)
        cache.commit(1, chain.num_tokens)
        chain.append([7])


def test_the_agreed_length_is_what_every_group_allows_and_says_which_did_not_allow_more() -> None:
    cache = make_cache(None, 9, num_blocks=10)
    chain = make_chain(16)
    admit(cache, 1, chain)
    cache.commit(1, 16)
    assert queue(cache) == [9, 5]
    stranger = make_chain(4, first=50)
    assert cache.reserve(2, stranger, 4), "takes 9, and 5 from the sliding group"

    longer, same, shorter = (cache.match(make_chain(length), length) for length in (17, 16, 9))
    assert (longer.num_cached_tokens, longer.limited_by) == (16, None)
    assert (same.num_cached_tokens, same.limited_by) == (15, None)
    assert (shorter.num_cached_tokens, shorter.limited_by) == (0, 1), "it would need the block that is gone"


@given(
    st.lists(st.one_of(st.none(), st.integers(1, 30)), min_size=1, max_size=3),
    st.integers(1, 6),
    st.integers(1, 60),
    st.integers(0, 30),
    st.integers(1, 20),
    st.booleans(),
)
def test_an_extension_of_a_served_prompt_hits_every_block_of_it(
    windows: list[int | None],
    block_size: int,
    num_prompt: int,
    num_more: int,
    max_chunk: int,
    all_at_once: bool,
) -> None:
    cache = make_cache(*windows, num_blocks=1000, block_size=block_size)
    chain = make_chain(num_prompt, block_size=block_size)
    if all_at_once:
        assert cache.reserve(1, chain, num_prompt)
    for start in range(0, num_prompt, max_chunk):
        end = min(num_prompt, start + max_chunk)
        assert cache.reserve(1, chain, end)
        cache.commit(1, end)
    cache.release(1)
    longer = make_chain(num_prompt + num_more, block_size=block_size)
    assert admit(cache, 2, longer) == min(num_prompt // block_size * block_size, longer.num_tokens - 1)
    check_invariants(cache)


# In flight.


def test_a_request_planned_later_in_a_step_takes_what_the_step_computes() -> None:
    cache = make_cache()
    admit(cache, 1, make_chain(8))
    cache.announce(1, 8)
    assert admit(cache, 2, make_chain(10)) == 8
    assert cache.block_tables(2) == ((1, 2, 3),)
    cache.commit(2, 10)
    cache.commit(1, 8)
    assert cache.pool.keyed_blocks() == [1, 2]
    check_invariants(cache)


def test_only_full_blocks_of_known_tokens_are_announced() -> None:
    cache = make_cache()
    chain = make_chain(6)
    assert cache.reserve(1, chain, 12)
    cache.announce(1, 12)
    assert cache.match(make_chain(12), 12).num_cached_tokens == 4


def test_with_sharing_off_nothing_is_announced() -> None:
    cache = make_cache(share_in_flight=False)
    admit(cache, 1, make_chain(8))
    cache.announce(1, 8)
    assert cache.match(make_chain(8), 8).num_blocks == 0


def test_after_a_failed_step_nothing_of_it_is_found_and_who_built_on_it_can_only_go() -> None:
    cache = make_cache()
    owner, borrower = make_chain(8), make_chain(10)
    admit(cache, 1, owner)
    cache.announce(1, 8)
    admit(cache, 2, borrower)
    cache.abandon()
    check_invariants(cache)
    assert cache.match(make_chain(8), 8).num_blocks == 0
    with pytest.raises(AssertionError, match="failed step"):
        cache.commit(2, 10)
    with pytest.raises(AssertionError, match="failed step"):
        cache.reserve(2, borrower, 12)
    cache.release(2)
    cache.commit(1, 8)
    check_invariants(cache)
    assert cache.match(make_chain(9), 9).num_cached_tokens == 8


def test_a_request_with_announced_blocks_is_not_released_within_the_step() -> None:
    cache = make_cache()
    admit(cache, 1, make_chain(8))
    cache.announce(1, 8)
    with pytest.raises(AssertionError, match="before release"):
        cache.release(1)


def test_a_request_that_built_on_a_step_may_leave_before_it_fails() -> None:
    cache = make_cache()
    admit(cache, 1, make_chain(8))
    cache.announce(1, 8)
    admit(cache, 2, make_chain(10))
    cache.release(2)
    cache.abandon()
    check_invariants(cache)


def test_a_rematch_exchanges_unfilled_blocks_and_gives_its_own_back() -> None:
    cache = make_cache()
    first, second = make_chain(12), make_chain(14)
    admit(cache, 1, first)
    admit(cache, 2, second)
    cache.commit(2, 6)
    cache.commit(1, 12)
    assert cache.block_tables(2) == ((4, 5, 6, 7),)
    match = cache.match(second, 14)
    assert cache.reserve(2, second, 14, match)
    assert cache.block_tables(2) == ((4, 2, 3, 7),), "block 4 is filled and stays, 5 and 6 are exchanged"
    assert queue(cache)[:2] == [5, 6]
    check_invariants(cache)


def test_a_rematch_that_brings_nothing_changes_nothing() -> None:
    cache = make_cache()
    chain = make_chain(10)
    admit(cache, 1, chain)
    cache.commit(1, 9)
    tables = cache.block_tables(1)
    assert cache.reserve(1, chain, 10, cache.match(chain, 10))
    assert cache.block_tables(1) is tables
    cache.commit(1, 10)


def test_a_rematch_lets_go_what_falls_behind_the_window() -> None:
    cache = make_cache(4)
    first, second = make_chain(24), make_chain(24)
    admit(cache, 1, first)
    assert cache.reserve(2, second, 8)
    cache.commit(2, 6)
    cache.commit(1, 24)
    assert cache.reserve(2, second, 24, cache.match(second, 24))
    assert cache.block_tables(2) == ((0, 0, 0, 0, 0, 6),)
    check_invariants(cache)


# Reset and accounts.


def test_a_reset_drops_every_key_and_says_how_many() -> None:
    cache = make_cache()
    serve(cache, 1, make_chain(8))
    running = make_chain(8, first=50)
    admit(cache, 2, running)
    cache.commit(2, 6)
    report = cache.reset()
    assert (report.epoch, report.num_dropped_blocks) == (1, 3)
    assert cache.pool.num_keys == 0
    check_invariants(cache)


def test_what_a_request_from_before_a_reset_computes_is_never_keyed() -> None:
    cache = make_cache()
    chain = make_chain(8)
    admit(cache, 1, chain)
    cache.reset()
    cache.commit(1, 8)
    assert cache.pool.num_keys == 0
    cache.release(1)
    assert serve(cache, 2, make_chain(9)) == 0
    assert cache.match(make_chain(9), 9).num_cached_tokens == 8


def test_a_reset_forgets_what_is_in_flight() -> None:
    cache = make_cache()
    admit(cache, 1, make_chain(8))
    cache.announce(1, 8)
    cache.reset()
    assert cache.match(make_chain(8), 8).num_blocks == 0
    cache.commit(1, 8)
    check_invariants(cache)


def test_idle_blocks_keep_their_place_in_the_queue_through_a_reset() -> None:
    cache = make_cache(num_blocks=6)
    serve(cache, 1, make_chain(12))
    before = queue(cache)
    cache.reset()
    assert queue(cache) == before


def test_events_tell_what_happened_to_keys_in_order() -> None:
    cache = make_cache(num_blocks=3)
    events = cache.events.subscribe()
    one, other = make_chain(4), make_chain(8, first=50)
    serve(cache, 1, one)
    serve(cache, 2, other)
    cache.reset()
    serve(cache, 3, one)
    assert events.read().events == (
        BlocksStored(0, 0, (1,), tuple(one.block_hashes)),
        BlocksEvicted(0, (0,), (1,), tuple(one.block_hashes)),
        BlocksStored(0, 0, (2, 1), tuple(other.block_hashes)),
        CacheReset(1, 2),
        BlocksStored(1, 0, (1,), tuple(one.block_hashes)),
    )
    assert events.read().events == ()


def test_counters_only_grow_and_keep_preempted_requests_apart() -> None:
    cache = make_cache(num_blocks=3)
    stats = cache.stats
    stats.record_query(10)
    stats.record_hit(8)
    stats.record_query(12, preempted=True)
    stats.record_hit(4, preempted=True)
    serve(cache, 1, make_chain(8))
    serve(cache, 2, make_chain(8, first=50))
    cache.reset()
    expected = replace(
        type(stats)(),
        num_query_tokens=10,
        num_hit_tokens=8,
        num_preempted_query_tokens=12,
        num_preempted_hit_tokens=4,
        num_stored_blocks=4,
        num_evicted_blocks=2,
        num_resets=1,
    )
    assert stats == expected


@pytest.mark.parametrize(
    ("windows", "settings"),
    [((), {"num_blocks": 1}), ((), {"block_size": 0}), ((0,), {}), ((None, -3), {})],
)
def test_a_cache_that_can_hold_nothing_is_refused(
    windows: tuple[int | None, ...], settings: dict[str, int]
) -> None:
    with pytest.raises(InvalidParameterError):
        make_cache(*windows, **settings)


def test_a_cache_without_groups_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="group"):
        CacheManager([], num_blocks=4, block_size=4)
