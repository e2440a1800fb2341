"""`EvictionPolicy`: what the pool asks of the order in which idle blocks are evicted."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol


class EvictionPolicy(Protocol):
    """Keeps the idle blocks (keyed, unused) in the order in which they will be evicted.

    The pool calls `add` when blocks fall idle, `remove` when a hit takes them up again, `evict` when it has
    no block without a key left. A policy holds exactly the blocks added and neither removed nor evicted
    since; it never sees a block twice without one of these between, is never asked for more than it holds,
    and does nothing to the blocks themselves. It may use what it saw of a block before, but the id of an
    evicted block comes back with other content.
    """

    def add(self, block_ids: Sequence[int]) -> None:
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
