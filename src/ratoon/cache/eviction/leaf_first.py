"""`LeafFirst`: idle blocks as the forest of prefixes that they are; only its leaves can be evicted.

A policy that ranks blocks by anything but time could evict a prefix and keep what hangs on it, which no
request can reach any more. Built on this class it cannot: a block becomes evictable when the last idle block
after it is gone, and is offered to the policy at that moment. What that costs is that a worthless block in
front of a valuable one stays.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy

from ratoon.cache.eviction.facts import BlockFacts

REMEMBERED_POOLS = 8
"""Blocks whose number of uses is remembered after they are evicted, as a multiple of the pool."""


class LeafFirst(ABC):
    """Keeps the forest; the policy says which leaf goes. O(1) per block besides what the policy does.

    The children of a block are counted by its key, so a block id that is used for other content does no
    harm. A second idle block of the same key is a spare: it goes before everything else.
    """

    def __init__(self, facts: BlockFacts) -> None:
        facts.keep()
        self.facts = facts
        self.turns: dict[int, int] = {}
        """Idle blocks, spares aside, with the number of their coming; a block that comes back has another."""
        self.num_turns = 0
        self._ids: dict[bytes, int] = {}
        self._num_children: dict[bytes, int] = {}
        self._spares: dict[int, None] = {}
        self._uses: OrderedDict[bytes, int] = OrderedDict()

    @abstractmethod
    def _arrive(self, block_id: int, num_uses: int) -> None:
        """Rank a block that falls idle after so many requests, as far as remembered, have used it."""

    @abstractmethod
    def _offer(self, block_id: int) -> None:
        """Take in a block that became a leaf; until it is popped it may stop being one."""

    @abstractmethod
    def _pop(self) -> int:
        """Return the leaf to evict next; offers for which `_is_open` is false are dropped."""

    def _is_open(self, block_id: int, turn: int) -> bool:
        """Whether an offer made in that turn still stands."""
        return self.turns.get(block_id) == turn and self.facts.keys[block_id] not in self._num_children

    def add(self, block_ids: Sequence[int]) -> None:
        """Take in blocks, of a chain the deepest first."""
        keys, parents, children = self.facts.keys, self.facts.parents, self._num_children
        for block_id in block_ids:
            key = keys[block_id]
            if key in self._ids:
                self._spares[block_id] = None
                continue
            self._ids[key] = block_id
            self.num_turns += 1
            self.turns[block_id] = self.num_turns
            self._arrive(block_id, self._count_use(key))
            parent = parents[block_id]
            children[parent] = children.get(parent, 0) + 1
            if key not in children:
                self._offer(block_id)

    def remove(self, block_ids: Iterable[int]) -> None:
        """Take blocks out, wherever they stand."""
        for block_id in block_ids:
            if block_id in self._spares:
                del self._spares[block_id]
            else:
                self._detach(block_id)

    def evict(self, count: int) -> list[int]:
        """Take spares, then leaves one by one."""
        victims: list[int] = []
        while len(victims) < count:
            if self._spares:
                victims.append(self._spares.popitem()[0])
                continue
            block_id = self._pop()
            self._detach(block_id)
            victims.append(block_id)
        return victims

    def __iter__(self) -> Iterator[int]:
        return iter(deepcopy(self, {id(self.facts): self.facts}).evict(len(self)))

    def __len__(self) -> int:
        return len(self._ids) + len(self._spares)

    def _detach(self, block_id: int) -> None:
        del self._ids[self.facts.keys[block_id]]
        del self.turns[block_id]
        parent = self.facts.parents[block_id]
        num_children = self._num_children[parent] - 1
        if num_children:
            self._num_children[parent] = num_children
            return
        del self._num_children[parent]
        parent_id = self._ids.get(parent)
        if parent_id is not None:
            self._offer(parent_id)

    def _count_use(self, key: bytes) -> int:
        num_uses = self._uses.pop(key, 0) + 1
        self._uses[key] = num_uses
        if len(self._uses) > REMEMBERED_POOLS * self.facts.num_blocks:
            self._uses.popitem(last=False)
        return num_uses
