"""Policies that rank a block when it falls idle; the leaf of the lowest rank goes. O(log n) per block."""

import heapq
from abc import abstractmethod

from ratoon.cache.eviction.facts import BlockFacts
from ratoon.cache.eviction.leaf_first import LeafFirst


class Ranked(LeafFirst):
    """Leaves in a heap. Offers that no longer stand are dropped as they come up, or when there are many."""

    def __init__(self, facts: BlockFacts) -> None:
        super().__init__(facts)
        self._ranks: dict[int, float] = {}
        self._heap: list[tuple[float, int, int]] = []

    @abstractmethod
    def rank(self, block_id: int, num_uses: int) -> float:
        """Return the rank of a block that falls idle."""

    def _arrive(self, block_id: int, num_uses: int) -> None:
        self._ranks[block_id] = self.rank(block_id, num_uses)

    def _offer(self, block_id: int) -> None:
        heapq.heappush(self._heap, (self._ranks[block_id], self.turns[block_id], block_id))
        if len(self._heap) > 2 * len(self) + 64:
            self._heap = list({offer for offer in self._heap if self._is_open(offer[2], offer[1])})
            heapq.heapify(self._heap)

    def _pop(self) -> int:
        while True:
            rank, turn, block_id = heapq.heappop(self._heap)
            if self._is_open(block_id, turn):
                self._evicted(rank)
                return block_id

    def _evicted(self, rank: float) -> None:
        """Take notice of the rank of a victim."""


class GreedyDual(Ranked):
    """GreedyDual with frequency and cost (Cherkasova, 1998, of Young's GreedyDual).

    A block's rank is its uses times what computing it again costs, which grows with depth, above the rank
    of the last victim: what is not used again sinks as others come.
    """

    def __init__(self, facts: BlockFacts) -> None:
        super().__init__(facts)
        self._floor = 0.0

    def rank(self, block_id: int, num_uses: int) -> float:
        """Return uses times cost, above the floor."""
        return self._floor + num_uses * self.facts.cost(block_id)

    def _evicted(self, rank: float) -> None:
        self._floor = max(self._floor, rank)


class Subtree(Ranked):
    """By how often a block's subtree was used: each use buys two turnovers of the pool.

    A request that uses a block uses all before it, so the uses of a block are those of its subtree. One that
    was used once waits for as long as in an LRU list; at five the advantage ends, so that what was popular
    leaves in the end.
    """

    _MOST_USES = 5
    _TURNOVERS = 2

    def rank(self, block_id: int, num_uses: int) -> float:
        """Return the moment up to which the block should stay, counted in blocks that fell idle."""
        extra = min(num_uses, self._MOST_USES) - 1
        return self.num_turns + extra * self._TURNOVERS * self.facts.num_blocks
