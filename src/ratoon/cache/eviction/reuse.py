"""`ExpectedReuse`: learns after how long blocks come back, by how often they did before.

The class of a block is its number of uses, which tells a system prompt from a conversation's second turn and
that from a document seen once, without reading a token. `ReuseTimes` says what a block of a class and age is
worth, and the leaf that is worth least goes. Where that loses against an LRU list of keys beside it, the
policy falls back to LRU and tries again later, after ever longer pauses.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Sequence

from ratoon.cache.eviction.facts import BlockFacts
from ratoon.cache.eviction.leaf_first import REMEMBERED_POOLS, LeafFirst
from ratoon.cache.eviction.survival import ReuseTimes, age_class

NUM_CLASSES = 8
FEWEST_SEEN = 500
"""Blocks after which it begins to trust what it learned."""
MOST_SLICES = 64


def use_class(num_uses: int) -> int:
    """Return the class of a block: up to four uses each their own, then powers of two."""
    return min(num_uses - 1, 3) if num_uses < 5 else min(num_uses.bit_length() + 1, NUM_CLASSES - 1)


class ExpectedReuse(LeafFirst):
    """Leaves lie by class and slice of time in which they fell idle.

    A slice gets twice as long when there are more than `MOST_SLICES`, so looking for the worst place takes a
    constant number of steps per `evict`, and a block O(log n) moves in its life.
    """

    def __init__(self, facts: BlockFacts) -> None:
        super().__init__(facts)
        self._times = ReuseTimes(NUM_CLASSES, REMEMBERED_POOLS * facts.num_blocks)
        self._ranks: dict[int, tuple[int, float]] = {}
        self._slice_s = 1.0
        self._places: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        self._order: list[tuple[float, int, int]] | None = None  # of places, while blocks are evicted
        self._num_seen = 0
        self._next_lesson = FEWEST_SEEN
        self._guard = Guard(facts)

    def add(self, block_ids: Sequence[int]) -> None:
        """Take in blocks and learn from them."""
        now = self.facts.clock()
        super().add(block_ids)
        self._guard.compare(block_ids, is_learned=bool(self._times.worth))
        self._num_seen += len(block_ids)
        if self._num_seen >= self._next_lesson:
            self._times.learn(now)
            self._next_lesson = self._num_seen + max(FEWEST_SEEN, self.facts.num_blocks // 2)

    def evict(self, count: int) -> list[int]:
        """Take the leaves that are worth least now."""
        self._coarsen()
        now = self.facts.clock()
        self._order = [(self._worth(place, now), *place) for place in self._places]
        heapq.heapify(self._order)
        victims = super().evict(count)
        self._order = None
        self._guard.forget(victims)
        return victims

    def _arrive(self, block_id: int, num_uses: int) -> None:
        kind, now = use_class(num_uses), self.facts.clock()
        self._ranks[block_id] = kind, now
        self._times.see(self.facts.keys[block_id], kind, now)

    def _offer(self, block_id: int) -> None:
        kind, since = self._ranks[block_id]
        place = kind, int(since / self._slice_s)
        if place not in self._places:
            self._places[place] = deque()
            if self._order is not None:
                heapq.heappush(self._order, (self._worth(place, self.facts.clock()), *place))
        self._places[place].append((self.turns[block_id], block_id))

    def _pop(self) -> int:
        assert self._order is not None, "called by `evict` alone"
        while True:
            _, kind, number = self._order[0]
            leaves = self._places[kind, number]
            while leaves:
                turn, block_id = leaves.popleft()
                if self._is_open(block_id, turn):
                    return block_id
            heapq.heappop(self._order)
            del self._places[kind, number]

    def _worth(self, place: tuple[int, int], now: float) -> float:
        kind, number = place
        since = (number + 0.5) * self._slice_s
        if not self._times.worth or self._guard.prefers_lru:
            return since
        return self._times.worth[kind][age_class(max(0.0, now - since))]

    def _coarsen(self) -> None:
        """Make slices longer until there are few enough; drop what lies in them and is no leaf any more."""
        numbers = {number for _, number in self._places}
        if len(numbers) <= MOST_SLICES:
            return
        self._slice_s *= 2
        places = sorted(self._places.items(), key=lambda item: item[0][1])
        self._places = {}
        for (kind, number), leaves in places:
            open_leaves = (offer for offer in leaves if self._is_open(offer[1], offer[0]))
            self._places.setdefault((kind, number // 2), deque()).extend(open_leaves)


class Guard:
    """Counts the hits of an LRU list of the same size beside those of the policy, over the last few pools.

    Both are told by the blocks that fall idle: it was a hit if the block, or in the list its key, had been
    there since its last use.
    """

    _MEMORY = 4  # pools over which the lead is forgotten
    _MARGIN = 0.03  # lead of LRU, in pools, that ends a trial
    _FIRST_PAUSE, _LONGEST_PAUSE = 8, 64  # pools

    def __init__(self, facts: BlockFacts) -> None:
        self.prefers_lru = False
        self._facts = facts
        self._kept: dict[int, bytes] = {}
        self._lru: OrderedDict[bytes, None] = OrderedDict()
        self._lead = 0.0
        self._since_switch = 0
        self._pause = self._FIRST_PAUSE

    def compare(self, block_ids: Sequence[int], *, is_learned: bool) -> None:
        """Count blocks that fell idle together, and change sides if it is time."""
        size = self._facts.num_blocks
        gain = 0
        for block_id in block_ids:
            key = self._facts.keys[block_id]
            gain += self._kept.get(block_id) == key
            self._kept[block_id] = key
            if key in self._lru:
                gain -= 1
                del self._lru[key]
            self._lru[key] = None
        while len(self._lru) >= size:
            self._lru.popitem(last=False)
        if not is_learned:
            return
        self._since_switch += len(block_ids)
        if self.prefers_lru:
            if self._since_switch >= self._pause * size:
                self.prefers_lru, self._lead, self._since_switch = False, 0.0, 0
                self._pause = min(2 * self._pause, self._LONGEST_PAUSE)
            return
        self._lead += gain - self._lead * min(1.0, len(block_ids) / (self._MEMORY * size))
        if self._lead < -self._MARGIN * size and self._since_switch > size:
            self.prefers_lru, self._since_switch = True, 0

    def forget(self, block_ids: Sequence[int]) -> None:
        """Note that blocks were evicted."""
        for block_id in block_ids:
            self._kept.pop(block_id, None)
