"""The eviction policies by the name that a setting gives them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ratoon.cache.eviction.facts import BlockFacts
from ratoon.cache.eviction.lru import LeastRecentlyUsed
from ratoon.cache.eviction.policy import EvictionPolicy
from ratoon.cache.eviction.ranked import GreedyDual, Subtree
from ratoon.cache.eviction.reuse import ExpectedReuse
from ratoon.cache.eviction.s3fifo import S3Fifo

PolicyMaker = Callable[[BlockFacts], EvictionPolicy]

EVICTION_POLICIES: Mapping[str, PolicyMaker] = MappingProxyType(
    {
        "lru": LeastRecentlyUsed,
        "s3fifo": S3Fifo,
        "greedy-dual": GreedyDual,
        "subtree": Subtree,
        "reuse": ExpectedReuse,
    }
)
"""A policy registers by its line here; everything else finds it by name."""
