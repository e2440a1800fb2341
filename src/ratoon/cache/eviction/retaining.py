"""`Retaining`: marked blocks leave after all others, whatever the policy, until their time is over.

A mark stays on a block through use and idleness, until its time is over or the block is evicted. A longer
one replaces it. Marks begin at the first block of a chain, so a tail still goes before its prefix.
"""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ratoon.cache.eviction.policy import EvictionPolicy
from ratoon.cache.stats import CacheStats


class Mark(NamedTuple):
    """For whom blocks are kept, and until when on the cache's clock."""

    tenant: str
    until_s: float


class Retaining:
    """An `EvictionPolicy` over another one, which holds the unmarked blocks; O(log n) per marked block.

    At most `max_marked` blocks are marked for one tenant. Sole writer of the counters of retained blocks.
    """

    def __init__(
        self,
        inner: EvictionPolicy,
        max_marked: int = 1 << 62,
        clock: Callable[[], float] = time.monotonic,
        stats: CacheStats | None = None,
    ) -> None:
        self.inner = inner
        self._max_marked = max_marked
        self._clock = clock
        self._stats = stats or CacheStats()
        self._marks: dict[int, Mark] = {}
        self._num_marked: Counter[str] = Counter()
        self._unused: set[int] = set()  # marked blocks that no hit took up yet
        self._idle: dict[int, int] = {}  # marked block -> its turn, which numbers what fell idle
        self._queue: list[
            tuple[float, int, int]
        ] = []  # (until, turn, block); out of date if the turn differs
        self._num_turns = 0

    def mark(self, block_ids: Sequence[int], mark: Mark) -> None:
        """Mark blocks that are in use, deepest first; beyond the tenant's share the deepest stay unmarked."""
        self._expire()
        for block_id in reversed(block_ids):
            old = self._marks.get(block_id)
            if old is not None:
                if mark.until_s > old.until_s:
                    self._marks[block_id] = old._replace(until_s=mark.until_s)
            elif self._num_marked[mark.tenant] < self._max_marked:
                self._marks[block_id] = mark
                self._num_marked[mark.tenant] += 1
                self._unused.add(block_id)
                self._stats.num_retained_blocks += 1

    def add(self, block_ids: Sequence[int]) -> None:
        """Queue the marked ones by the end of their time, hand the others on."""
        now = self._clock()
        unmarked = []
        for block_id in block_ids:
            mark = self._marks.get(block_id)
            if mark is not None and mark.until_s > now:
                self._num_turns += 1
                self._idle[block_id] = self._num_turns
                heapq.heappush(self._queue, (mark.until_s, self._num_turns, block_id))
                continue
            if mark is not None:
                self._drop_mark(block_id)
            unmarked.append(block_id)
        self.inner.add(unmarked)

    def remove(self, block_ids: Iterable[int]) -> None:
        """Let go of blocks that are used again; their marks stay."""
        unmarked = []
        for block_id in block_ids:
            if self._idle.pop(block_id, None) is None:
                unmarked.append(block_id)
            elif block_id in self._unused:
                self._unused.discard(block_id)
                self._stats.num_retained_hit_blocks += 1
        self.inner.remove(unmarked)

    def evict(self, count: int) -> list[int]:
        """Take unmarked blocks first, then those whose time ends soonest."""
        self._expire()
        victims = self.inner.evict(min(count, len(self.inner)))
        while len(victims) < count:
            _, turn, block_id = heapq.heappop(self._queue)
            if self._idle.get(block_id) == turn:
                del self._idle[block_id]
                self._drop_mark(block_id)
                victims.append(block_id)
        return victims

    def __iter__(self) -> Iterator[int]:
        self._expire()
        yield from self.inner
        for _, turn, block_id in sorted(self._queue):
            if self._idle.get(block_id) == turn:
                yield block_id

    def __len__(self) -> int:
        return len(self.inner) + len(self._idle)

    def _expire(self) -> None:
        """Hand on the blocks whose time is over."""
        now = self._clock()
        over = []
        while self._queue and self._queue[0][0] <= now:
            _, turn, block_id = heapq.heappop(self._queue)
            if self._idle.get(block_id) == turn:
                del self._idle[block_id]
                self._drop_mark(block_id)
                over.append(block_id)
        if over:
            self.inner.add(over)

    def _drop_mark(self, block_id: int) -> None:
        self._num_marked[self._marks.pop(block_id).tenant] -= 1
        self._unused.discard(block_id)
