"""`S3Fifo`: blocks used once wait in a small queue and leave quickly (Yang et al., SOSP 2023)."""

import heapq

from ratoon.cache.eviction.facts import BlockFacts
from ratoon.cache.eviction.leaf_first import LeafFirst

SMALL_PERCENT = 10


class S3Fifo(LeafFirst):
    """Two queues of leaves in order of coming; O(log n) per block.

    A block enters the small queue unless it is remembered: evicted blocks are the ghosts of the original.
    A hit brings it into the main queue, and within that to the back. The small queue gives as long as it
    holds more than its share of the idle blocks, then the main queue.
    """

    def __init__(self, facts: BlockFacts) -> None:
        super().__init__(facts)
        self._queues: tuple[list[tuple[int, int]], ...] = ([], [])
        self._is_main: dict[int, bool] = {}
        self._num_small = 0

    def _arrive(self, block_id: int, num_uses: int) -> None:
        self._is_main[block_id] = num_uses > 1
        self._num_small += num_uses == 1

    def _offer(self, block_id: int) -> None:
        heapq.heappush(self._queues[self._is_main[block_id]], (self.turns[block_id], block_id))

    def _pop(self) -> int:
        first = 100 * self._num_small <= SMALL_PERCENT * len(self)
        for queue in (self._queues[first], self._queues[not first]):
            while queue:
                turn, block_id = heapq.heappop(queue)
                if self._is_open(block_id, turn):
                    return block_id
        raise AssertionError("where there are idle blocks there is a leaf")

    def _detach(self, block_id: int) -> None:
        self._num_small -= not self._is_main.pop(block_id)
        super()._detach(block_id)
