"""Every eviction policy keeps the contract; LRU forgets what was unused for longest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.cache.eviction.catalog import EVICTION_POLICIES, PolicyMaker
from ratoon.cache.eviction.facts import BlockFacts
from ratoon.cache.eviction.lru import LeastRecentlyUsed


@pytest.mark.parametrize("make", EVICTION_POLICIES.values(), ids=EVICTION_POLICIES.keys())
@given(data=st.data())
def test_a_policy_holds_what_was_added_and_not_taken_and_evicts_in_the_order_it_shows(
    make: PolicyMaker, data: st.DataObject
) -> None:
    policy = make(BlockFacts(21, 16))
    idle: set[int] = set()
    for _ in range(data.draw(st.integers(1, 12), label="steps")):
        match data.draw(st.sampled_from(["add", "remove", "evict"]), label="step"):
            case "add":
                new = data.draw(st.lists(st.integers(1, 20), unique=True), label="added")
                new = [block_id for block_id in new if block_id not in idle]
                policy.add(new)
                idle.update(new)
            case "remove":
                used = data.draw(st.sets(st.sampled_from(sorted(idle))) if idle else st.just(set()))
                policy.remove(used)
                idle -= used
            case "evict":
                count = data.draw(st.integers(0, len(idle)), label="count")
                expected = list(policy)[:count]
                assert policy.evict(count) == expected
                idle.difference_update(expected)
        assert sorted(policy) == sorted(idle)
        assert len(policy) == len(idle)


def test_the_longest_idle_block_goes_first_and_a_use_makes_a_block_young_again() -> None:
    policy = LeastRecentlyUsed()
    policy.add([3, 1, 2])
    policy.remove([3])
    policy.add([3])
    assert policy.evict(2) == [1, 2]
    assert list(policy) == [3]
