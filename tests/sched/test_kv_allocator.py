from collections.abc import Sequence
from typing import Any

import pytest

from ratoon.cache.manager import CacheManager
from ratoon.identity.hash_chain import HashChain
from ratoon.request.hit_limit import HitLimit, LimitReason
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.kv_allocator import KVAllocator
from ratoon.spec.cache_group import CacheGroupSpec

PROMPT = range(1, 17)  # four blocks


@pytest.fixture
def cache() -> CacheManager:
    return CacheManager([CacheGroupSpec()], num_blocks=30, block_size=4)


@pytest.fixture
def allocator(cache: CacheManager) -> KVAllocator:
    return KVAllocator(cache, max_chunk=64)


def request(number: int) -> Request:
    return Request(number, HashChain(bytes(32), 4, tokens=PROMPT), SamplingParams(), 7)


def compute(allocator: KVAllocator, request: Request, budget: int) -> None:
    """Start the request or move it on by one chunk."""
    if request.num_reserved:
        chunk = allocator.extend(request, budget)
    else:
        chunk = allocator.admit(request, budget, alone=False)
        request.first_scheduled_s = 0.0
    assert chunk is not None
    allocator.commit(request, chunk.first_position + len(chunk.token_ids))


def test_a_prompt_position_counts_once_by_how_it_was_first_obtained(
    cache: CacheManager, allocator: KVAllocator
) -> None:
    slow, fast = request(1), request(2)
    compute(allocator, slow, 8)
    allocator.release(slow)
    cache.reset()
    compute(allocator, slow, 4)  # its own eight tokens are gone, so it computes four of them again
    compute(allocator, fast, 64)
    compute(allocator, slow, 64)  # jumps from 4 to 15: four tokens that it once had, seven that are new to it
    assert slow.num_computed == 16
    assert slow.usage.cached_tokens == 7
    assert slow.usage.computed_tokens == 9
    assert fast.usage.cached_tokens == 4
    assert cache.stats.num_query_tokens == 32
    assert cache.stats.num_hit_tokens == 7 + 4
    assert cache.stats.num_preempted_query_tokens == 16
    assert cache.stats.num_preempted_hit_tokens == 4


def test_coming_back_to_blocks_of_ones_own_is_a_re_hit(cache: CacheManager, allocator: KVAllocator) -> None:
    one = request(1)
    compute(allocator, one, 8)
    allocator.release(one)
    assert (one.num_computed, one.num_reserved, one.block_tables) == (0, 0, ())
    compute(allocator, one, 64)
    assert one.usage.cached_tokens == 0
    assert cache.stats.num_preempted_hit_tokens == 8


def test_what_others_computed_of_the_prompt_during_a_preemption_is_a_hit(
    cache: CacheManager, allocator: KVAllocator
) -> None:
    one, other = request(1), request(2)
    compute(allocator, one, 8)
    allocator.release(one)
    compute(allocator, other, 64)
    compute(allocator, one, 64)
    assert one.usage.cached_tokens == 7
    assert cache.stats.num_preempted_hit_tokens == 8
    assert cache.stats.num_hit_tokens == one.usage.cached_tokens + other.usage.cached_tokens


def test_a_refused_admission_changes_nothing(cache: CacheManager, allocator: KVAllocator) -> None:
    holder = Request(1, HashChain(bytes(32), 4, tokens=[9] * 101), SamplingParams(), 7)
    compute(allocator, holder, 101)
    free = cache.num_free_blocks
    newcomer = request(2)
    assert allocator.admit(newcomer, 64, alone=False) is None
    assert cache.num_free_blocks == free
    assert cache.stats.num_query_tokens == 101
    assert newcomer.num_reserved == 0


def admitted(cache: CacheManager, tokens: Sequence[int], **settings: Any) -> Request:
    """Serve a prompt; return its request."""
    params = SamplingParams(prompt_logprobs=settings.pop("prompt_logprobs", None))
    served = Request(1, HashChain(bytes(32), 4, tokens=tokens), params, 7, **settings)
    allocator = KVAllocator(cache, max_chunk=64)
    compute(allocator, served, 64)
    allocator.release(served)
    return served


def test_a_request_is_told_in_words_who_limited_its_hit() -> None:
    cache = CacheManager([CacheGroupSpec(), CacheGroupSpec(6)], num_blocks=40, block_size=4)
    assert Request(1, HashChain(bytes(32), 4, tokens=PROMPT), SamplingParams(), 7).usage.limited_by is None
    cold, warm, longer = (admitted(cache, tokens) for tokens in (PROMPT, PROMPT, [*PROMPT, *PROMPT]))
    assert str(cold.usage.limited_by) == "full attention: the next block was not cached"
    assert str(warm.usage.limited_by) == "nothing: every full block was cached"
    assert (longer.usage.cached_tokens, str(longer.usage.limited_by)) == (16, str(cold.usage.limited_by))
    assert str(admitted(cache, [5]).usage.limited_by) == str(warm.usage.limited_by)


def test_a_window_whose_blocks_are_gone_is_named_with_its_size() -> None:
    cache = CacheManager([CacheGroupSpec(), CacheGroupSpec(6)], num_blocks=13, block_size=4)
    admitted(cache, PROMPT)
    admitted(cache, range(50, 62))  # evicts what lay behind the window
    fork = admitted(cache, [*PROMPT[:8], 99])
    assert fork.usage.cached_tokens == 0
    assert str(fork.usage.limited_by) == (
        "the window of 6 tokens: its blocks before any later point were not all cached"
    )


def test_who_looks_for_nothing_is_told_so() -> None:
    cache = CacheManager([CacheGroupSpec()], num_blocks=30, block_size=4)
    for settings in ({"read_cache": False}, {"prompt_logprobs": 1}):
        unread = admitted(cache, PROMPT, **settings)
        assert str(unread.usage.limited_by) == "the request: it does not read the cache"
    off = CacheManager([CacheGroupSpec()], num_blocks=30, block_size=4, enable_prefix_caching=False)
    assert str(admitted(off, PROMPT).usage.limited_by) == "the settings: caching is off"


def test_taking_over_more_of_the_prompt_in_prefill_renews_the_reason(
    cache: CacheManager, allocator: KVAllocator
) -> None:
    slow, fast = request(1), request(2)
    compute(allocator, slow, 4)
    assert str(slow.limited_by) == "full attention: the next block was not cached"
    compute(allocator, fast, 64)
    compute(allocator, slow, 64)
    assert str(slow.limited_by) == "nothing: every full block was cached"


def test_the_reason_names_the_position_and_the_key_that_was_missing() -> None:
    cache = CacheManager([CacheGroupSpec(), CacheGroupSpec(6)], num_blocks=40, block_size=4)
    full = admitted(cache, [*PROMPT[:8], *range(90, 99)])
    assert full.limited_by == HitLimit(LimitReason.FULL_ATTENTION, 0, 0, full.chain.block_hashes[0])
    longer = admitted(cache, [*PROMPT[:8], *range(70, 79)])
    assert longer.limited_by == HitLimit(LimitReason.FULL_ATTENTION, 8, 0, longer.chain.block_hashes[2])
    again = admitted(cache, [*PROMPT[:8], *range(70, 78)])
    assert again.limited_by == HitLimit(LimitReason.COMPLETE, 15)


def test_a_windows_reason_names_the_last_block_that_it_lacked() -> None:
    cache = CacheManager([CacheGroupSpec(), CacheGroupSpec(6)], num_blocks=13, block_size=4)
    admitted(cache, PROMPT)
    admitted(cache, range(50, 62))  # evicts what lay behind the window
    chain = HashChain(bytes(32), 4, tokens=PROMPT[:8])
    assert [key in cache.pool.indexes[0].first for key in chain.block_hashes] == [True, True]
    gone = [key for key in chain.block_hashes if key not in cache.pool.indexes[1].first]
    fork = admitted(cache, [*PROMPT[:8], 99])
    assert fork.limited_by == HitLimit(LimitReason.WINDOW, 0, 1, gone[0], 6)
