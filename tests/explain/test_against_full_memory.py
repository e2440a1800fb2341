"""Random sessions, explained by a model that remembers everything and looks through all of it.

The model knows no hashes: a block is what it is made of, the tokens up to its end and all that sets them
apart. What is stored it reads from the pool after every operation, and so it sees what came and went.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from ratoon.identity.hash_chain import HashChain
from ratoon.request.explanation import Explanation, MissReason, Pressure
from tests.explain.caches import SIZE, Session, chain_of

Content = tuple[bytes | None, str | None, bytes | None, tuple[int, ...]]
"""Adapter, salt, image, and the tokens up to a block's end: what a block is."""

EXTRAS = (MissReason.ADAPTER, MissReason.SALT, MissReason.INPUT_ROWS)

Stored = set[tuple[int, Content]]


def content_of(chain: HashChain, block: int) -> Content:
    extras = chain.extra_keys
    image = extras.media[0].content if extras.media else None
    return extras.adapter, extras.salt, image, tuple(chain.tokens[: (block + 1) * SIZE])


def num_common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))


@dataclass
class FullMemory:
    """Everything that happened in one session."""

    session: Session
    windows: tuple[int | None, ...]
    contents: dict[bytes, Content] = field(default_factory=dict)
    own: dict[str, set[Content]] = field(default_factory=lambda: {"a": set(), "b": set()})
    left: dict[tuple[int, Content], str | None] = field(default_factory=dict)  # for whom; None: a reset
    running: dict[int, tuple[HashChain, str, bool]] = field(default_factory=dict)
    before: Stored = field(default_factory=set)

    def watch(self, actor: str | None) -> None:
        """Note what came and went in an operation of `actor`, None for a reset."""
        now = self.stored()
        for key in self.before - now:
            self.left[key] = actor
        self.before = now

    def stored(self) -> Stored:
        pool = self.session.cache.pool
        return {
            (pool.block_groups[block_id] if len(self.windows) > 1 else 0, self.contents[key])
            for block_id in pool.keyed_blocks()
            if (key := pool.block_hashes[block_id]) is not None
        }

    def introduce(self, chain: HashChain) -> HashChain:
        for block, block_hash in enumerate(chain.block_hashes):
            self.contents[block_hash] = content_of(chain, block)
        return chain

    def reason(self, chain: HashChain, owner: str, num_blocks: int) -> MissReason:
        num_full = chain.num_tokens // SIZE
        if num_blocks == num_full:
            return MissReason.BELOW_ONE_BLOCK if chain.num_tokens % SIZE else MissReason.ONLY_LAST_TOKEN
        full = [g for g, window in enumerate(self.windows) if window is None]
        content = content_of(chain, num_blocks)
        lacking = [g for g in full if (g, content) not in self.before]
        if not lacking:
            return MissReason.WINDOW
        if any(
            runner == owner and writes and content in map_contents(other) and other is not chain
            for other, runner, writes in self.running.values()
        ):
            return MissReason.STILL_COMPUTED
        if content in self.own[owner]:
            return MissReason.RESET if self.left[lacking[0], content] is None else MissReason.EVICTED
        return self._unknown_block(content, owner, num_blocks)

    def _unknown_block(self, content: Content, owner: str, num_blocks: int) -> MissReason:
        tokens = content[3]
        apart = []
        for twin in self.own[owner]:
            if twin[3] == tokens and num_blocks == 0:  # all that sets prompts apart is in their first block
                differences = [reason for reason, x, y in zip(EXTRAS, content, twin, strict=False) if x != y]
                apart.append((len(differences), differences[0]))
        if apart:
            return min(apart)[1]
        return MissReason.DIVERGED if self.common(content, owner, num_blocks) else MissReason.NEVER_SEEN

    def common(self, content: Content, owner: str, num_blocks: int) -> int:
        """Return the tokens in common with the nearest of the owner's blocks after the same prefix."""
        start = num_blocks * SIZE
        near = [
            num_common(content[3], other[3])
            for other in self.own[owner]
            if other[:3] == content[:3]
            and len(other[3]) == len(content[3])
            and other[3][:start] == content[3][:start]
        ]
        return max(near, default=0)


def map_contents(chain: HashChain) -> list[Content]:
    return [content_of(chain, block) for block in range(len(chain.block_hashes))]


def random_chain(random: Random) -> HashChain:
    tokens = [random.choice((1, 1, 1, 2)) for _ in range(random.randint(1, 22))]
    rare = random.random()
    if rare < 0.1:
        return chain_of(tokens, salt=random.choice("xy"))
    if rare < 0.2:
        return chain_of(tokens, adapter=random.choice((b"one", b"two")))
    if rare < 0.3 and len(tokens) > 3:
        return chain_of(tokens, image=random.choice((b"cat", b"dog")))
    return chain_of(tokens)


def play(seed: int, found: Counter[MissReason]) -> None:
    random = Random(seed)
    windows = random.choice(((None,), (None,), (None, 6)))
    session = Session(*windows, num_blocks=random.randint(16, 30))
    memory = FullMemory(session, windows)
    for _ in range(14):
        session.clock.now += 1
        owner = random.choice("ab")
        chain = memory.introduce(random_chain(random))
        action = random.random()
        if action < 0.05:
            session.cache.reset()
            memory.watch(None)
            # What runs on will never be stored.
            memory.running = {key: (*request[:2], False) for key, request in memory.running.items()}
        elif action < 0.25 and memory.running:
            finish(memory, random.choice(list(memory.running)))
        elif session.cache.num_free_blocks >= len(windows) * 6:
            request_id = session.start(chain, owner, writes=random.random() < 0.9)
            writes = session.cache.requests[request_id].epoch is not None
            memory.running[request_id] = (chain, owner, writes)
            memory.watch(owner)
            if action < 0.8:
                finish(memory, request_id)
        check(memory, memory.introduce(random_chain(random)), random.choice("ab"), found)


def finish(memory: FullMemory, request_id: int) -> None:
    session = memory.session
    chain, owner, _ = memory.running.pop(request_id)
    epoch = session.cache.requests[request_id].epoch
    session.finish(request_id)
    if epoch == session.cache.epoch:
        memory.own[owner].update(map_contents(chain))
    memory.watch(owner)


def check(memory: FullMemory, chain: HashChain, owner: str, found: Counter[MissReason]) -> None:
    session = memory.session
    match = session.cache.match(chain, chain.num_tokens)
    explanation = session.explain(chain, owner)
    expected = memory.reason(chain, owner, match.num_blocks)
    assert explanation.reason is expected, (explanation, expected)
    found[expected] += 1
    if expected is MissReason.DIVERGED:
        content = content_of(chain, match.num_blocks)
        assert explanation.relative is not None
        assert explanation.relative.num_common_tokens == memory.common(content, owner, match.num_blocks)
    if expected is MissReason.EVICTED:
        check_pressure(memory, chain, owner, explanation)


def check_pressure(memory: FullMemory, chain: HashChain, owner: str, explanation: Explanation) -> None:
    assert explanation.eviction is not None
    assert explanation.block is not None
    assert explanation.group is not None
    left_for = memory.left[explanation.group, content_of(chain, explanation.block)]
    assert explanation.eviction.pressure is (Pressure.OWN if left_for == owner else Pressure.OTHERS)


def test_the_reason_is_the_one_that_full_memory_gives() -> None:
    found: Counter[MissReason] = Counter()
    for seed in range(1000):
        play(seed, found)
    happened = {reason for reason, count in found.items() if count > 3}
    assert happened >= {
        MissReason.NEVER_SEEN,
        MissReason.DIVERGED,
        MissReason.EVICTED,
        MissReason.RESET,
        MissReason.SALT,
        MissReason.ADAPTER,
        MissReason.INPUT_ROWS,
        MissReason.WINDOW,
        MissReason.STILL_COMPUTED,
        MissReason.BELOW_ONE_BLOCK,
        MissReason.ONLY_LAST_TOKEN,
    }, found
