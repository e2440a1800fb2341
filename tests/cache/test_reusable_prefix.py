"""What a request leaves for those who continue it, whatever the windows, block sizes, chunks and pool.

The least that is reusable: every full block of what a request has computed, one after the other from the
first token. It holds from the step that filled a block on, and as long as the request keeps its blocks no
pressure of others can take it away; afterwards it lasts until one of those blocks is evicted.
"""

from hypothesis import given
from hypothesis import strategies as st

from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import CacheGroupSpec

STRANGER = 99
REQUEST = 1

windows = st.lists(st.none() | st.integers(1, 30), min_size=1, max_size=3)
block_sizes = st.integers(1, 6)
lengths = st.integers(1, 60)
chunks = st.integers(1, 20)


def evict_all_idle(cache: CacheManager) -> None:
    """Let somebody take every block that is free, and give it back."""
    num_tokens = cache.num_free_blocks // len(cache.groups) * cache.block_size
    chain = HashChain(bytes(32), cache.block_size, tokens=range(1000, 1000 + num_tokens))
    assert cache.reserve(STRANGER, chain, num_tokens)
    cache.release(STRANGER)


def check_hit(cache: CacheManager, num_computed: int, num_more: int) -> None:
    """Check that the computed tokens, continued or not, hit all their full blocks."""
    chain = HashChain(bytes(32), cache.block_size, tokens=range(num_computed + num_more))
    num_full = num_computed // cache.block_size * cache.block_size
    match = cache.match(chain, chain.num_tokens)
    assert match.num_cached_tokens >= min(num_full, chain.num_tokens - 1)


@given(windows, block_sizes, lengths, chunks, st.integers(0, 8), st.integers(0, 3))
def test_what_is_committed_stays_a_hit_under_any_pressure(
    windows: list[int | None], block_size: int, num_tokens: int, max_chunk: int, num_more: int, spare: int
) -> None:
    groups = [CacheGroupSpec(window) for window in windows]
    needed = CacheManager(groups, num_blocks=2, block_size=block_size).blocks_for(num_tokens, max_chunk)
    cache = CacheManager(groups, num_blocks=1 + needed + spare, block_size=block_size)
    chain = HashChain(bytes(32), block_size, tokens=range(num_tokens))
    for start in range(0, num_tokens, max_chunk):
        end = min(num_tokens, start + max_chunk)
        assert cache.reserve(REQUEST, chain, end)
        cache.commit(REQUEST, end)
        evict_all_idle(cache)
        check_hit(cache, end, num_more)
        assert cache.num_committed(REQUEST) == end // block_size * block_size
    cache.release(REQUEST)
    check_hit(cache, num_tokens, num_more)
    check_invariants(cache)


@given(windows, block_sizes, lengths, st.integers(0, 60), chunks, st.integers(0, 8))
def test_whoever_builds_on_a_hit_leaves_as_much(
    windows: list[int | None],
    block_size: int,
    num_prompt: int,
    num_output: int,
    max_chunk: int,
    num_more: int,
) -> None:
    cache = CacheManager(
        [CacheGroupSpec(window) for window in windows], num_blocks=400, block_size=block_size
    )
    first = HashChain(bytes(32), block_size, tokens=range(num_prompt))
    assert cache.reserve(REQUEST, first, num_prompt)
    cache.commit(REQUEST, num_prompt)
    cache.release(REQUEST)

    chain = HashChain(bytes(32), block_size, tokens=range(num_prompt + num_output))
    match = cache.match(chain, chain.num_tokens)
    num_computed = match.num_cached_tokens
    assert num_computed == min(num_prompt // block_size * block_size, chain.num_tokens - 1)
    while num_computed < chain.num_tokens:
        end = min(chain.num_tokens, num_computed + max_chunk)
        assert cache.reserve(2, chain, end, match if num_computed == match.num_cached_tokens else None)
        cache.commit(2, end)
        num_computed = end
        evict_all_idle(cache)
        check_hit(cache, num_computed, num_more + (num_computed < chain.num_tokens))
    cache.release(2)
    check_hit(cache, chain.num_tokens, num_more)
    check_invariants(cache)


@given(windows, block_sizes, lengths, chunks, st.data())
def test_while_nothing_is_evicted_every_beginning_of_a_served_prompt_is_a_hit(
    windows: list[int | None], block_size: int, num_tokens: int, max_chunk: int, data: st.DataObject
) -> None:
    cache = CacheManager(
        [CacheGroupSpec(window) for window in windows], num_blocks=500, block_size=block_size
    )
    chain = HashChain(bytes(32), block_size, tokens=range(num_tokens))
    for start in range(0, num_tokens, max_chunk):
        end = min(num_tokens, start + max_chunk)
        assert cache.reserve(REQUEST, chain, end)
        cache.commit(REQUEST, end)
    if data.draw(st.booleans(), label="released"):
        cache.release(REQUEST)
    check_hit(cache, data.draw(st.integers(1, num_tokens), label="common"), 0)
