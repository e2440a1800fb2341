"""The groups agree, whatever order they stand in and whatever each of them lost."""

from hypothesis import given
from hypothesis import strategies as st

from ratoon.cache.events import EventBus
from ratoon.cache.eviction import LeastRecentlyUsed
from ratoon.cache.group import CacheGroup
from ratoon.cache.in_flight import InFlight
from ratoon.cache.match import Match, Matcher
from ratoon.cache.pool import BlockPool
from ratoon.cache.stats import CacheStats
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import CacheGroupSpec


def match(windows: list[int | None], present: list[set[int]], block_size: int, num_tokens: int) -> Match:
    """Match a prompt in a cache where group g holds the logical blocks `present[g]` of it."""
    stats, num_groups = CacheStats(), len(windows)
    pool = BlockPool(200, num_groups, LeastRecentlyUsed(), EventBus(stats, 10))
    chain = HashChain(bytes(32), block_size, tokens=range(num_tokens))
    for g, blocks in enumerate(present):
        held = sorted(i for i in blocks if i < len(chain.block_hashes))
        hashes, records = [chain.block_hashes[i] for i in held], [chain.block_tokens[i] for i in held]
        pool.store(g, pool.allocate(len(held)), hashes, records)
    groups = [CacheGroup(CacheGroupSpec(window), block_size) for window in windows]
    matcher = Matcher(groups, block_size, pool, InFlight(num_groups), stats)
    return matcher.find(chain, num_tokens, num_tokens // block_size)


def test_a_group_is_asked_again_when_a_later_one_shortened_the_hit() -> None:
    found = match([5, None], [{0, 2}, {0, 1}], 4, 13)
    assert found.num_blocks == 1, "at 3 the full group has too little, at 2 the sliding one"
    assert found.limited_by == 0


def test_without_blocks_of_one_group_there_is_no_hit() -> None:
    found = match([None, 5], [{0, 1, 2}, set()], 4, 13)
    assert (found.num_blocks, found.block_ids, found.limited_by) == (0, ((), ()), 1)


@given(
    st.data(), st.lists(st.one_of(st.none(), st.integers(1, 12)), min_size=1, max_size=3), st.integers(1, 4)
)
def test_the_agreed_length_is_the_greatest_that_brute_force_finds(
    data: st.DataObject, windows: list[int | None], block_size: int
) -> None:
    num_tokens = data.draw(st.integers(1, 10 * block_size), label="num_tokens")
    blocks = st.sets(st.integers(0, 9)).map(lambda missing: set(range(10)) - missing)
    present = [data.draw(blocks, label="present") for _ in windows]
    found = match(windows, present, block_size, num_tokens)

    def is_allowed(length: int) -> bool:
        query = min(length * block_size, num_tokens - 1)
        for window, held in zip(windows, present, strict=True):
            first = 0 if window is None else max(0, query - window + 1) // block_size
            needed = {*range(first, length), length - 1} if length else set()
            if not needed <= held:
                return False
        return True

    assert found.num_blocks == max(filter(is_allowed, range(num_tokens // block_size + 1)))
    assert all(len(ids) == found.num_blocks for ids in found.block_ids)
    assert (found.limited_by is None) == (found.num_blocks == num_tokens // block_size)
