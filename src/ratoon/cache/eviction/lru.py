"""`LeastRecentlyUsed`: the usual order, and the yardstick for every other one."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ratoon.cache.eviction.facts import BlockFacts


class LeastRecentlyUsed:
    """The block that has been idle longest goes first. Every operation is O(1) per block."""

    def __init__(self, facts: BlockFacts | None = None) -> None:
        self._order: OrderedDict[int, None] = OrderedDict()

    def add(self, block_ids: Sequence[int]) -> None:
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
