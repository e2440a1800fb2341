"""The manager against a naive twin and a pretended KV store, through all that a scheduler can bring about.

The twin knows no hashes: a key is the whole prefix. It searches lists and undoes a refusal by going
back to a copy. The pretended store keeps for each slot the prefix that was written there, so that
reading shows whether a hit was right.
"""

from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ratoon.cache.events import BlocksEvicted, BlocksStored
from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.cache.match import Match
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import BlockTables, CacheGroupSpec

ROOT = bytes(32)
GROUPS = [(None,), (3,), (None, 4), (2, None, 7), (1, 5)]

Key = tuple[int, str | None, tuple[int, ...]]
Hit = tuple[int, int, BlockTables]


class Twin:
    """The cache as one would explain it."""

    def __init__(
        self,
        windows: tuple[int | None, ...],
        num_blocks: int,
        block_size: int,
        *,
        caching: bool,
        sharing: bool,
    ) -> None:
        self.windows = windows
        self.size = block_size
        self.caching = caching
        self.sharing = sharing and caching
        self.queue = list(range(1, num_blocks))
        self.refs = [0] * num_blocks
        self.keys: dict[int, Key] = {}  # oldest first
        self.announced: list[tuple[int, Key, int]] = []
        self.borrowers: set[int] = set()
        self.private: set[int] = set()
        self.tables: dict[int, list[list[int]]] = {}
        self.filled: dict[int, int] = {}
        self.computed: dict[int, int] = {}
        self.events: list[tuple[str, int, int]] = []

    def first_needed(self, group: int, position: int) -> int:
        window = self.windows[group]
        return 0 if window is None else max(0, position - window + 1) // self.size

    def first_required(self, group: int, length: int, cached: int) -> int:
        return max(0, min(self.first_needed(group, cached), length - 1))

    def key(self, group: int, chain: HashChain, i: int) -> Key:
        return group, chain.extra_keys.salt, tuple(chain.tokens[: (i + 1) * self.size])

    def find(self, key: Key) -> int:
        committed = [block_id for block_id, held in self.keys.items() if held == key]
        in_flight = [block_id for _, held, block_id in self.announced if held == key]
        return (committed + in_flight + [0])[0]

    def match(self, chain: HashChain, num_tokens: int) -> Hit:
        for length in range(num_tokens // self.size if self.caching else 0, -1, -1):
            cached = min(length * self.size, num_tokens - 1)
            tables = []
            for g in range(len(self.windows)):
                first = self.first_required(g, length, cached)
                found = [self.find(self.key(g, chain, i)) for i in range(first, length)]
                if all(found):
                    tables.append((0,) * first + tuple(found))
            if len(tables) == len(self.windows):
                return cached, length, tuple(tables)
        raise AssertionError("a hit of no length is always possible")

    def reserve(
        self, request_id: int, chain: HashChain, num_tokens: int, hit: Hit | None, keep_free: int, write: bool
    ) -> bool:
        before = deepcopy(self.__dict__)
        if request_id not in self.tables:
            self.tables[request_id] = [[] for _ in self.windows]
            self.filled[request_id] = self.computed[request_id] = 0
            if not write:
                self.private.add(request_id)
        if not self._reserve(request_id, num_tokens, hit, keep_free):
            self.__dict__ = before
            return False
        return True

    def _reserve(self, request_id: int, num_tokens: int, hit: Hit | None, keep_free: int) -> bool:
        tables, filled = self.tables[request_id], self.filled[request_id]
        num_wanted = -(-num_tokens // self.size)
        takes = hit is not None and hit[1] > filled
        if not takes and num_wanted <= len(tables[0]):
            return True
        if takes:
            assert hit is not None
            cached, length, hits = hit
            for hit_ids in hits:
                for hit_id in hit_ids[filled:]:
                    self.pin(request_id, hit_id)
            for g in reversed(range(len(tables))):
                behind = min(self.first_required(g, length, cached), filled)
                for i in reversed(range(len(tables[g]))):
                    if i < behind or filled <= i < length:
                        self.let_go(tables[g][i])
                tables[g][:behind] = [0] * behind
                tables[g][filled:length] = hits[g][filled:]
            self.filled[request_id] = length
            self.computed[request_id] = max(cached, self.computed[request_id])
        for table in tables:
            while len(table) < num_wanted:
                if not self.queue:
                    return False
                block_id = self.queue.pop(0)
                if block_id in self.keys:
                    self.events.append(("evicted", self.keys.pop(block_id)[0], block_id))
                self.refs[block_id] = 1
                table.append(block_id)
        return len(self.queue) >= keep_free

    def pin(self, request_id: int, block_id: int) -> None:
        if block_id:
            if block_id in self.queue:
                self.queue.remove(block_id)
            self.refs[block_id] += 1
            if any(block_id == announced for _, _, announced in self.announced):
                self.borrowers.add(request_id)

    def let_go(self, block_id: int) -> None:
        if block_id:
            self.refs[block_id] -= 1
            if not self.refs[block_id]:
                self.queue.insert(len(self.queue) if block_id in self.keys else 0, block_id)

    def announce(self, request_id: int, chain: HashChain, num_tokens: int) -> None:
        if self.sharing and request_id not in self.private:
            for g, table in enumerate(self.tables[request_id]):
                for i in range(self.filled[request_id], min(num_tokens, chain.num_tokens) // self.size):
                    self.announced.append((request_id, self.key(g, chain, i), table[i]))

    def commit(self, request_id: int, chain: HashChain, num_computed: int) -> None:
        self.settle(request_id)
        length = num_computed // self.size
        for g, table in enumerate(self.tables[request_id]):
            for i in range(self.filled[request_id], length):
                if self.caching and request_id not in self.private:
                    self.keys[table[i]] = self.key(g, chain, i)
                    self.events.append(("stored", g, table[i]))
        self.filled[request_id] = max(length, self.filled[request_id])
        self.computed[request_id] = num_computed
        for g, table in enumerate(self.tables[request_id]):
            first = self.first_needed(g, self.filled[request_id] * self.size - 1)
            for block_id in reversed(table[:first]):
                self.let_go(block_id)
            table[:first] = [0] * first

    def settle(self, request_id: int) -> None:
        self.announced = [entry for entry in self.announced if entry[0] != request_id]
        self.borrowers.discard(request_id)

    def abandon(self) -> set[int]:
        lost, self.borrowers, self.announced = self.borrowers, set(), []
        return lost

    def release(self, request_id: int) -> None:
        self.settle(request_id)
        self.private.discard(request_id)
        filled = self.filled.pop(request_id)
        tables = self.tables.pop(request_id)
        del self.computed[request_id]
        for table in reversed(tables):
            for block_id in reversed(table[filled:]):
                self.let_go(block_id)
        for i in reversed(range(filled)):
            for table in tables:
                self.let_go(table[i])

    def reset(self) -> int:
        num_dropped = len(self.keys)
        self.keys.clear()
        self.announced.clear()
        self.private.update(self.tables)
        return num_dropped


@dataclass
class Chunk:
    """What a request runs in the step being planned."""

    first: int
    end: int
    drafts: tuple[int, ...] = ()


@dataclass
class Holder:
    """A request; `chunk` while it is in the step being planned."""

    chain: HashChain
    write: bool
    chunk: Chunk | None = None


class World:
    """A manager, its twin and a pretended KV store, and what a scheduler may do to them.

    Every move draws what it needs from the `Random` given to it, compares the answers of manager and twin,
    and does nothing where it makes no sense.
    """

    def __init__(
        self,
        windows: tuple[int | None, ...],
        num_blocks: int,
        block_size: int,
        *,
        caching: bool,
        sharing: bool,
    ) -> None:
        self.size = block_size
        self.windows = windows
        self.cache = CacheManager(
            [CacheGroupSpec(window) for window in windows],
            num_blocks=num_blocks,
            block_size=block_size,
            enable_prefix_caching=caching,
            share_in_flight=sharing,
        )
        self.events = self.cache.events.subscribe()
        self.twin = Twin(windows, num_blocks, block_size, caching=caching, sharing=sharing)
        self.running: dict[int, Holder] = {}
        self.waiting: list[Holder] = []
        self.store: dict[tuple[int, int], object] = {}
        self.last_tables: dict[int, BlockTables] = {}
        self.num_admitted = 0

    # Planning a step.

    def admit(self, random: Random) -> None:
        if len(self.running) + len(self.waiting) < 6:
            holder = Holder(self.draw_chain(random), write=random.random() < 0.8)
            read, keep_free = random.random() < 0.8, random.choice([0, 0, 0, 2])
            self.enter(holder, read, draw_size(random), keep_free)

    def readmit(self, random: Random) -> None:
        if self.waiting:
            holder = self.waiting.pop(random.randrange(len(self.waiting)))
            if not self.enter(holder, True, draw_size(random), 0):
                self.waiting.append(holder)

    def enter(self, holder: Holder, read: bool, size: int, keep_free: int) -> bool:
        request_id = self.num_admitted
        self.num_admitted += 1
        self.running[request_id] = holder
        admitted = self.plan(request_id, read, size, keep_free)
        if not admitted:
            del self.running[request_id]
        return admitted

    def extend(self, random: Random) -> None:
        behind = [i for i in self.unplanned() if self.twin.computed[i] < self.running[i].chain.num_tokens]
        if behind:
            self.plan(random.choice(behind), random.random() < 0.7, draw_size(random), 0)

    def plan(self, request_id: int, read: bool, size: int, keep_free: int) -> bool:
        holder = self.running[request_id]
        chain = holder.chain
        first = self.twin.computed.get(request_id, 0)
        match = hit = None
        if read:
            match, hit = self.compare_match(chain)
            if match.num_blocks > self.twin.filled.get(request_id, 0):
                first = max(first, match.num_cached_tokens)
        end = min(chain.num_tokens, first + size)
        got = self.cache.reserve(request_id, chain, end, match, keep_free=keep_free, write_cache=holder.write)
        assert got == self.twin.reserve(request_id, chain, end, hit, keep_free, holder.write)
        if got:
            assert self.twin.computed[request_id] == first, "a re-match never shortens progress"
            self.run(request_id, Chunk(first, end))
        return got

    def speculate(self, random: Random) -> None:
        if self.unplanned():
            request_id = random.choice(self.unplanned())
            holder = self.running[request_id]
            drafts = tuple(random.choices([0, 1], k=random.randint(1, 5)))
            end = holder.chain.num_tokens + len(drafts)
            got = self.cache.reserve(request_id, holder.chain, end)
            assert got == self.twin.reserve(request_id, holder.chain, end, None, 0, holder.write)
            if got:
                self.run(request_id, Chunk(self.twin.computed[request_id], end, drafts))

    def run(self, request_id: int, chunk: Chunk) -> None:
        self.running[request_id].chunk = chunk
        self.cache.announce(request_id, chunk.end)
        self.twin.announce(request_id, self.running[request_id].chain, chunk.end)

    # The step.

    def succeed(self, random: Random) -> None:
        planned = self.planned()
        for request_id, chunk in planned:
            self.write(request_id, chunk, good=True)
        for request_id, chunk in planned:
            self.read(request_id, chunk)
        random.shuffle(planned)
        for request_id, chunk in planned:
            holder = self.running[request_id]
            num_computed = chunk.end
            if chunk.drafts:
                holder.chain.append(chunk.drafts[: random.randint(0, len(chunk.drafts))])
                num_computed = holder.chain.num_tokens
            self.cache.commit(request_id, num_computed)
            self.twin.commit(request_id, holder.chain, num_computed)
            holder.chunk = None

    def fail(self, random: Random) -> None:
        for request_id, chunk in self.planned():
            self.write(request_id, chunk, good=False)
            self.running[request_id].chunk = None
        lost = self.twin.abandon()
        self.cache.abandon()
        for request_id in lost:
            self.release(request_id)

    def written(self, request_id: int, chunk: Chunk) -> range:
        """Return the positions whose KV the chunk writes: filled blocks are left alone."""
        return range(max(chunk.first, self.twin.filled[request_id] * self.size), chunk.end)

    def write(self, request_id: int, chunk: Chunk, *, good: bool) -> None:
        for g, table in enumerate(self.cache.block_tables(request_id)):
            for i in self.written(request_id, chunk):
                block_id = table[i // self.size]
                assert block_id != 0, "the null block is not written"
                assert block_id not in self.twin.keys, "a committed block is not written again"
                self.store[block_id, i % self.size] = (
                    self.value(g, request_id, chunk, i) if good else "garbage"
                )

    def read(self, request_id: int, chunk: Chunk) -> None:
        """Look at everything that the queries of the chunk see."""
        for g, table in enumerate(self.cache.block_tables(request_id)):
            window = self.windows[g]
            first = 0 if window is None else max(0, chunk.first - window + 1)
            for i in range(first, chunk.end):
                assert self.store[table[i // self.size], i % self.size] == self.value(g, request_id, chunk, i)

    def value(self, group: int, request_id: int, chunk: Chunk, position: int) -> object:
        chain = self.running[request_id].chain
        return group, chain.extra_keys.salt, (*chain.tokens, *chunk.drafts)[: position + 1]

    # Between steps, or beside one.

    def append(self, random: Random) -> None:
        if self.unplanned():
            tokens = random.choices([0, 1], k=random.randint(1, 3))
            self.running[random.choice(self.unplanned())].chain.append(tokens)

    def leave(self, random: Random) -> None:
        if self.unplanned():
            request_id = random.choice(self.unplanned())
            if random.random() < 0.5:
                self.waiting.append(self.running[request_id])
            self.release(request_id)

    def ask(self, random: Random) -> None:
        self.compare_match(self.draw_chain(random))

    def reset(self, random: Random) -> None:
        assert self.cache.reset().num_dropped_blocks == self.twin.reset()

    def unplanned(self) -> list[int]:
        return [request_id for request_id, holder in self.running.items() if not holder.chunk]

    def planned(self) -> list[tuple[int, Chunk]]:
        return [(request_id, holder.chunk) for request_id, holder in self.running.items() if holder.chunk]

    def release(self, request_id: int) -> None:
        self.cache.release(request_id)
        self.twin.release(request_id)
        del self.running[request_id]
        self.last_tables.pop(request_id, None)

    def draw_chain(self, random: Random) -> HashChain:
        """Return a prompt that begins like one of two texts and has few tokens of its own."""
        text = random.choice([[0] * 16, [0, 1] * 8])
        tokens = text[: random.randint(1, 16)] + random.choices([0, 1], k=random.randint(0, 2))
        return HashChain(ROOT, self.size, ExtraKeys(salt=random.choice([None, None, None, "salt"])), tokens)

    def compare_match(self, chain: HashChain) -> tuple[Match, Hit]:
        num_tokens = chain.num_tokens
        match, hit = self.cache.match(chain, num_tokens), self.twin.match(chain, num_tokens)
        assert (match.num_cached_tokens, match.num_blocks, match.block_ids) == hit
        if self.cache.is_caching:
            assert (match.limited_by is None) == (match.num_blocks == num_tokens // self.size)
        return match, hit

    def compare(self) -> None:
        """Check the invariants, and that the manager is in every respect where its twin is."""
        cache, twin = self.cache, self.twin
        check_invariants(cache)
        assert list(cache.pool.free_queue()) == twin.queue
        assert cache.num_free_blocks == len(twin.queue)
        assert cache.pool.ref_counts == twin.refs
        assert cache.pool.keyed_blocks() == sorted(twin.keys)
        assert cache.pool.num_keys == len(set(twin.keys.values()))
        assert sorted(cache.requests) == sorted(twin.tables)
        for request_id, tables in twin.tables.items():
            handed_out = cache.block_tables(request_id)
            assert handed_out == tuple(map(tuple, tables))
            if handed_out == self.last_tables.get(request_id):
                assert handed_out is self.last_tables[request_id]
            self.last_tables[request_id] = handed_out
        assert self.taken_events() == twin.events
        twin.events.clear()

    def taken_events(self) -> list[tuple[str, int, int]]:
        entries = []
        for event in self.events.read().events:
            if isinstance(event, BlocksStored):
                entries += [("stored", event.group, block_id) for block_id in event.block_ids]
            elif isinstance(event, BlocksEvicted):
                pairs = zip(event.groups, event.block_ids, strict=True)
                entries += [("evicted", group, block_id) for group, block_id in pairs]
        return entries

    def end(self) -> None:
        """Give everything back; then every block can be handed out again."""
        self.cache.abandon()
        for request_id in self.running:
            self.cache.release(request_id)
        check_invariants(self.cache)
        assert self.cache.num_free_blocks == self.cache.num_usable_blocks


def draw_size(random: Random) -> int:
    return random.choice([1, 3, 4, 16, 16])


class ManagerMachine(RuleBasedStateMachine):
    """Hypothesis chooses the moves, and shrinks a failure to the few that matter."""

    randoms = st.randoms(use_true_random=False)

    @initialize(
        windows=st.sampled_from(GROUPS),
        num_blocks=st.sampled_from([40, 24, 16, 12, 8, 5]),
        block_size=st.sampled_from([2, 4, 3, 1]),
        caching=st.sampled_from([True, True, True, False]),
        sharing=st.booleans(),
    )
    def start(
        self, windows: tuple[int | None, ...], num_blocks: int, block_size: int, caching: bool, sharing: bool
    ) -> None:
        self.world = World(windows, num_blocks, block_size, caching=caching, sharing=sharing)

    @rule(random=randoms, move=st.sampled_from(["admit", "readmit", "extend", "speculate"]))
    def plan(self, random: Random, move: str) -> None:
        getattr(self.world, move)(random)

    @rule(random=randoms, move=st.sampled_from(["succeed", "succeed", "fail"]))
    def step(self, random: Random, move: str) -> None:
        getattr(self.world, move)(random)

    @rule(random=randoms, move=st.sampled_from(["append", "append", "leave", "leave", "ask", "reset"]))
    def change(self, random: Random, move: str) -> None:
        getattr(self.world, move)(random)

    @invariant()
    def compare(self) -> None:
        self.world.compare()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end()


ManagerMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
test_the_manager_equals_its_twin_and_never_hits_wrongly: Any = ManagerMachine.TestCase

MOVES = {
    "admit": 8,
    "readmit": 4,
    "extend": 8,
    "speculate": 2,
    "succeed": 5,
    "fail": 1,
    "append": 3,
    "leave": 3,
    "ask": 1,
    "reset": 0.2,
}


@pytest.mark.parametrize("windows", GROUPS, ids=str)
@pytest.mark.parametrize("sharing", [True, False], ids=["sharing", "copies"])
def test_a_long_walk_keeps_manager_and_twin_together(windows: tuple[int | None, ...], sharing: bool) -> None:
    for num_blocks, block_size in ((60, 2), (24, 4), (16, 2), (40, 1)):
        random = Random(num_blocks)
        world = World(windows, num_blocks, block_size, caching=True, sharing=sharing)
        for _ in range(600):
            (move,) = random.choices(list(MOVES), list(MOVES.values()))
            getattr(world, move)(random)
            world.compare()
        world.end()
