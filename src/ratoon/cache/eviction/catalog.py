"""The eviction policies by the name that a setting gives them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ratoon.cache.eviction.facts import BlockFacts
from ratoon.cache.eviction.lru import LeastRecentlyUsed
from ratoon.cache.eviction.policy import EvictionPolicy

PolicyMaker = Callable[[BlockFacts], EvictionPolicy]

EVICTION_POLICIES: Mapping[str, PolicyMaker] = MappingProxyType({"lru": LeastRecentlyUsed})
"""A policy registers by its line here; everything else finds it by name."""
