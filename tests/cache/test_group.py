"""What a group needs and what it allows, against the definition written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.cache.group import CacheGroup
from ratoon.spec.cache_group import CacheGroupSpec

windows = st.one_of(st.none(), st.integers(1, 20))


def allows(found: list[int], window: int | None, block_size: int, num_blocks: int, num_tokens: int) -> bool:
    """Say whether the last block is there, and all that the first query after the hit sees."""
    query = min(num_blocks * block_size, num_tokens - 1)
    first = 0 if window is None else max(0, query - window + 1)
    seen = [found[position // block_size] for position in range(first, num_blocks * block_size)]
    return all(seen) and (num_blocks == 0 or found[num_blocks - 1] != 0)


@given(st.lists(st.integers(0, 2), max_size=12), windows, st.integers(1, 5), st.integers(0, 4), st.data())
def test_the_longest_hit_is_the_greatest_length_that_the_definition_allows(
    found: list[int], window: int | None, block_size: int, extra: int, data: st.DataObject
) -> None:
    limit = data.draw(st.integers(0, len(found)), label="limit")
    num_tokens = max(1, len(found) * block_size + min(extra, block_size - 1))
    lengths = [n for n in range(limit + 1) if allows(found, window, block_size, n, num_tokens)]
    group = CacheGroup(CacheGroupSpec(window), block_size)
    assert group.longest_hit(found, limit, num_tokens) == max(lengths)


@pytest.mark.parametrize(("window", "num_needed"), [(2, 1), (9, 1), (10, 2), (17, 2), (18, 3)])
def test_a_hit_needs_the_blocks_of_the_window_before_it(window: int, num_needed: int) -> None:
    group = CacheGroup(CacheGroupSpec(window), 8)
    found = [0] * (10 - num_needed) + [1] * num_needed
    assert group.longest_hit(found, 10, 100) == 10
    found[10 - num_needed] = 0
    assert group.longest_hit(found, 10, 100) < 10


def test_even_a_window_of_one_token_needs_proof_that_the_hit_was_computed() -> None:
    group = CacheGroup(CacheGroupSpec(1), 4)
    assert group.longest_hit([0, 1, 0, 0], 4, 100) == 2
    assert group.longest_hit([0, 0, 0, 0], 4, 100) == 0


def test_a_full_hit_needs_what_the_last_token_sees_which_may_be_a_block_more() -> None:
    group = CacheGroup(CacheGroupSpec(9), 4)
    assert group.longest_hit([0, 0, 1, 1], 4, 17) == 4
    assert group.longest_hit([0, 0, 1, 1], 4, 16) == 0
    assert group.longest_hit([0, 1, 1, 1], 4, 16) == 4


def test_the_first_block_needed_holds_the_first_visible_position() -> None:
    full, sliding = CacheGroup(CacheGroupSpec(), 4), CacheGroup(CacheGroupSpec(6), 4)
    assert [full.first_needed(position) for position in (0, 9, 100)] == [0, 0, 0]
    assert [sliding.first_needed(position) for position in (0, 8, 9, 12, 13)] == [0, 0, 1, 1, 2]
