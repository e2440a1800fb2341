"""Which idle block gives up its key first."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Protocol


class EvictionPolicy(Protocol):
    """Keeps the idle blocks (keyed, unused) in the order in which they will be evicted.

    The pool calls `add` when blocks fall idle, `remove` when a hit takes them up again, `evict` when it has
    no block without a key left. A policy holds exactly the blocks added and neither removed nor evicted
    since; it never sees a block twice without one of these between, is never asked for more than it holds,
    and does nothing to the blocks themselves. It may use what it saw of a block before, but the id of an
    evicted block comes back with other content.
    """

    def add(self, block_ids: Iterable[int]) -> None:
        """Take in blocks that fell idle together; the first of them should go before the later ones."""
        ...

    def remove(self, block_ids: Iterable[int]) -> None:
        """Forget blocks that are used again."""
        ...

    def evict(self, count: int) -> list[int]:
        """Remove and return the next `count` blocks in eviction order."""
        ...

    def __iter__(self) -> Iterator[int]:
        """Go through the blocks in the order in which `evict` would return them now."""
        ...

    def __len__(self) -> int: ...


class LeastRecentlyUsed:
    """The block that has been idle longest goes first. Every operation is O(1) per block."""

    def __init__(self) -> None:
        self._order: OrderedDict[int, None] = OrderedDict()

    def add(self, block_ids: Iterable[int]) -> None:
        """Append, in the given order."""
        for block_id in block_ids:
            self._order[block_id] = None

    def remove(self, block_ids: Iterable[int]) -> None:
        """Take out of the middle."""
        for block_id in block_ids:
            del self._order[block_id]

    def evict(self, count: int) -> list[int]:
        """Pop from the front."""
        victims = list(islice(self._order, count))
        self.remove(victims)
        return victims

    def __iter__(self) -> Iterator[int]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


EVICTION_POLICIES: Mapping[str, Callable[[], EvictionPolicy]] = MappingProxyType({"lru": LeastRecentlyUsed})
"""Policies by the name a setting gives them."""
