"""Every eviction policy keeps the contract and lets tails go before prefixes; each has its own order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.cache.eviction.catalog import EVICTION_POLICIES, PolicyMaker
from ratoon.cache.eviction.facts import BlockFacts
from ratoon.cache.eviction.lru import LeastRecentlyUsed
from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import CacheGroupSpec

every_policy = pytest.mark.parametrize("make", EVICTION_POLICIES.values(), ids=EVICTION_POLICIES.keys())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Blocks:
    """Of a chain, what names its blocks."""

    def __init__(self, *names: bytes) -> None:
        self.root = b"root"
        self.block_hashes = list(names)


@every_policy
@given(data=st.data())
def test_a_policy_holds_what_was_added_and_not_taken_and_evicts_in_the_order_it_shows(
    make: PolicyMaker, data: st.DataObject
) -> None:
    facts = BlockFacts(21, 16, Clock())
    policy = make(facts)
    if facts.is_kept:
        facts.enter(0, range(1, 21), Blocks(*(bytes((n // 2, n)) for n in range(20))), 0)
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


class Served:
    """A cache with one policy, through which one request after another goes."""

    def __init__(self, make: PolicyMaker, num_blocks: int, windows: tuple[int | None, ...] = (None,)) -> None:
        self.clock = Clock()
        self.cache = CacheManager(
            [CacheGroupSpec(window) for window in windows],
            num_blocks=num_blocks, block_size=4, eviction=make, clock=self.clock,
        )  # fmt: skip
        self.num_requests = 0

    def ask(self, *names: int) -> int:
        """Serve a prompt of one block per name; return how many were hits."""
        self.num_requests += 1
        self.clock.now += 1.0
        tokens = [token for name in names for token in (name, 0, 0, 0)] + [9]
        chain = HashChain(bytes(32), 4, tokens=tokens)
        match = self.cache.match(chain, len(tokens))
        assert self.cache.reserve(self.num_requests, chain, len(tokens), match)
        self.cache.commit(self.num_requests, len(tokens))
        self.cache.release(self.num_requests)
        return match.num_blocks


@every_policy
@given(
    prompts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=60),
    windows=st.sampled_from([(None,), (6,), (None, 6)]),
)
def test_no_block_stays_behind_when_its_prefix_is_gone(
    make: PolicyMaker, prompts: list[list[int]], windows: tuple[int | None, ...]
) -> None:
    served = Served(make, 16, windows)
    for prompt in prompts:
        served.ask(*prompt)
        check_invariants(served.cache)
        if windows == (None,):
            keys = set(served.cache.pool.indexes[0])
            for length in range(1, len(prompt) + 1):
                chain = HashChain(bytes(32), 4, tokens=[t for n in prompt[:length] for t in (n, 0, 0, 0)])
                reachable = all(block_hash in keys for block_hash in chain.block_hashes)
                assert reachable or chain.block_hashes[-1] not in keys


@every_policy
def test_a_reset_empties_a_policy(make: PolicyMaker) -> None:
    served = Served(make, 8)
    served.ask(1, 2, 3)
    served.cache.reset()
    assert served.cache.pool.num_idle == 0
    assert served.ask(1, 2, 3) == 0
    assert served.ask(1, 2, 3) == 3


def test_the_longest_idle_block_goes_first_and_a_use_makes_a_block_young_again() -> None:
    policy = LeastRecentlyUsed()
    policy.add([3, 1, 2])
    policy.remove([3])
    policy.add([3])
    assert policy.evict(2) == [1, 2]
    assert list(policy) == [3]


@pytest.mark.parametrize("name", ["s3fifo", "greedy-dual", "subtree"])
def test_a_scan_does_not_flush_what_was_used_twice(name: str) -> None:
    def hits_after_a_scan(policy: str) -> int:
        served = Served(EVICTION_POLICIES[policy], 22)
        served.ask(1, 2, 3)
        served.ask(1, 2, 3)
        for document in range(100, 106):
            served.ask(document, 0, 0, 0)
        return served.ask(1, 2, 3)

    assert hits_after_a_scan("lru") == 0
    assert hits_after_a_scan(name) == 3


def test_reuse_learns_to_keep_what_comes_back_after_more_than_the_pool_holds() -> None:
    """Eight prompts come back after sixteen, in a pool for eleven; between them are prompts that never do."""

    def hits(policy: str) -> int:
        served = Served(EVICTION_POLICIES[policy], 36)
        found = 0
        for turn in range(2_000):
            found += served.ask(turn // 2 % 8 if turn % 2 else turn + 10, 5, 6)
        return found

    assert hits("lru") == 0
    assert hits("reuse") > 1_000, "of the 3,000 that a clairvoyant could find"


def test_a_block_deep_in_a_prompt_costs_more_than_the_first() -> None:
    facts = BlockFacts(4, 4096)
    facts.keep()
    facts.enter(0, [1, 2, 3], Blocks(b"a", b"b", b"c"), 0)
    assert [facts.cost(block_id) for block_id in (1, 2, 3)] == [1, 2, 3]
    assert facts.parents[1:] == [b"root", b"a", b"b"]
