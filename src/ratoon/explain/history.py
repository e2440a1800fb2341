"""`History`: the blocks that the cache holds or once held, whose they were, and how each came to go.

`RecordedCache` tells it what happens. What it is told waits in a list and is entered when a question comes,
or when the list has grown long, so a step pays for little more than an append. A block is remembered while
it is stored, and of those that are gone the latest `num_ghosts` are.

An owner is any label: callers with the same label may be told of each other's prompts. A block that several
owners sent belongs to each of them.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from ratoon.cache.pool import BlockPool
from ratoon.explain.siblings import Siblings
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain

_LONG = 64
"""Notes that may wait."""

_MANY = 16
"""Blocks of equal tokens that are looked at."""


@dataclass(frozen=True, slots=True)
class Gone:
    """An eviction at `moment_s`, for a request of `owner`, of a block that was idle for `idle_s`."""

    moment_s: float
    owner: str
    idle_s: float = 0.0


@dataclass(slots=True)
class RememberedBlock:
    """A block when it was stored last; `gone` has its evictions since then by cache group."""

    parent: bytes
    tokens: bytes
    extras: bytes
    extra_keys: ExtraKeys
    last_used_s: float = 0.0
    epoch: int = 0
    owners: tuple[str, ...] = ()
    gone: dict[int, Gone] = field(default_factory=dict)


Found = tuple[bytes, RememberedBlock]
"""A block's hash and what is remembered of it."""


@dataclass(frozen=True, slots=True)
class _Used:
    """Full blocks `first` to `end` of a chain were used, those from `stored_from` on stored, in `epoch`."""

    chain: HashChain
    owner: str
    first: int
    end: int
    stored_from: int
    epoch: int
    moment_s: float


@dataclass(frozen=True, slots=True)
class _Evicted:
    groups: tuple[int, ...]
    block_hashes: tuple[bytes, ...]
    gone: Gone


class History:
    """Used from the engine's thread. `pool` says which blocks are stored now.

    `forgotten_until_s` is the moment of the last use that is no longer remembered, None while nothing was
    forgotten.
    """

    def __init__(
        self, pool: BlockPool, num_ghosts: int, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.clock = clock
        self.forgotten_until_s: float | None = None
        self._pool = pool
        self._limit = num_ghosts + pool.num_blocks - 1
        self._blocks: OrderedDict[bytes, RememberedBlock] = OrderedDict()  # the latest used or evicted last
        self._siblings: dict[tuple[bytes, str, bytes], Siblings] = {}
        self._twins: dict[tuple[bytes, str, bytes], dict[bytes, None]] = {}
        self._notes: list[_Used | _Evicted] = []

    def note_used(
        self, chain: HashChain, owner: str, first: int, end: int, *, stored_from: int, epoch: int
    ) -> None:
        """Note that a request of `owner` used full blocks `first` to `end` of its chain until now.

        Those from `stored_from` on it has just stored, in every group.
        """
        if first < end:
            self._note(_Used(chain, owner, first, end, stored_from, epoch, self.clock()))

    def note_evicted(self, groups: tuple[int, ...], block_hashes: tuple[bytes, ...], owner: str) -> None:
        """Note that blocks were evicted for a request of `owner`."""
        self._note(_Evicted(groups, block_hashes, Gone(self.clock(), owner)))

    def __len__(self) -> int:
        self._enter_notes()
        return len(self._blocks)

    def get(self, block_hash: bytes, owner: str) -> RememberedBlock | None:
        """Return what is remembered of a block, if it is the owner's."""
        self._enter_notes()
        block = self._blocks.get(block_hash)
        return block if block is not None and owner in block.owners else None

    def num_seen(self, chain: HashChain, num_blocks: int, owner: str | None = None) -> int:
        """Return how many first blocks of a chain are remembered without a gap, as an owner's if given."""
        self._enter_notes()
        known = self._blocks
        for i, block_hash in enumerate(chain.block_hashes[:num_blocks]):
            block = known.get(block_hash)
            if block is None or (owner is not None and owner not in block.owners):
                return i
        return min(num_blocks, len(chain.block_hashes))

    def nearest(self, parent: bytes, owner: str, extras: bytes, tokens: bytes) -> tuple[int, Found | None]:
        """Return the owner's block after `parent` that begins most like `tokens`, and in how many tokens.

        Among equally near ones a stored block is preferred, then the one used last.
        """
        self._enter_notes()
        siblings = self._siblings.get((parent, owner, extras))
        if siblings is None:
            return 0, None
        num_common, hashes = siblings.nearest(tokens)
        best = max(hashes, key=lambda each: (self.is_stored(each), self._blocks[each].last_used_s))
        return num_common, (best, self._blocks[best])

    def twins(self, parent: bytes, owner: str, tokens: bytes) -> list[Found]:
        """Return the owner's latest blocks with the same parent and tokens, whatever else decides them."""
        self._enter_notes()
        hashes = self._twins.get((parent, owner, tokens), {})
        return [(block_hash, self._blocks[block_hash]) for block_hash in islice(reversed(hashes), _MANY)]

    def is_stored(self, block_hash: bytes, group: int | None = None) -> bool:
        """Say whether a block is in the index of a group, or of any."""
        indexes = self._pool.indexes if group is None else (self._pool.indexes[group],)
        return any(block_hash in index.first for index in indexes)

    def _note(self, note: _Used | _Evicted) -> None:
        self._notes.append(note)
        if len(self._notes) > _LONG:
            self._enter_notes()

    def _enter_notes(self) -> None:
        if not self._notes:
            return
        for note in self._notes:
            if isinstance(note, _Used):
                self._enter_use(note)
            else:
                self._enter_eviction(note)
        self._notes.clear()
        self._forget()

    def _enter_use(self, note: _Used) -> None:
        """Enter the deepest block first: the last one entered is forgotten last."""
        chain, owner = note.chain, note.owner
        for i in reversed(range(note.first, note.end)):
            block_hash = chain.block_hashes[i]
            block = self._blocks.get(block_hash)
            if block is None:
                parent = chain.block_hashes[i - 1] if i else chain.root
                extras = chain.extra_keys.encode_block(i * chain.block_size, (i + 1) * chain.block_size)
                block = RememberedBlock(parent, chain.block_tokens[i], extras, chain.extra_keys)
                self._blocks[block_hash] = block
            else:
                self._blocks.move_to_end(block_hash)
            if owner not in block.owners:
                self._add_owner(block_hash, block, owner)
            block.last_used_s = note.moment_s
            if i >= note.stored_from:
                block.epoch = note.epoch
                block.gone = {}

    def _add_owner(self, block_hash: bytes, block: RememberedBlock, owner: str) -> None:
        block.owners = (*block.owners, owner)
        siblings = self._siblings.setdefault((block.parent, owner, block.extras), Siblings())
        siblings.add(block.tokens, block_hash)
        self._twins.setdefault((block.parent, owner, block.tokens), {})[block_hash] = None

    def _enter_eviction(self, note: _Evicted) -> None:
        for group, block_hash in zip(note.groups, note.block_hashes, strict=True):
            block = self._blocks.get(block_hash)
            if block is not None:
                gone = note.gone
                block.gone[group] = Gone(gone.moment_s, gone.owner, gone.moment_s - block.last_used_s)
                self._blocks.move_to_end(block_hash)

    def _forget(self) -> None:
        """Forget the blocks that were used or evicted longest ago, but none that is stored."""
        while len(self._blocks) > self._limit:
            block_hash = next(iter(self._blocks))
            if self.is_stored(block_hash):
                self._blocks.move_to_end(block_hash)
                continue
            block = self._blocks.pop(block_hash)
            self.forgotten_until_s = max(block.last_used_s, self.forgotten_until_s or block.last_used_s)
            for owner in block.owners:
                self._forget_sibling(block_hash, block, owner)

    def _forget_sibling(self, block_hash: bytes, block: RememberedBlock, owner: str) -> None:
        key = (block.parent, owner, block.extras)
        siblings = self._siblings[key]
        siblings.remove(block.tokens, block_hash)
        if not len(siblings):
            del self._siblings[key]
        twin_key = (block.parent, owner, block.tokens)
        twins = self._twins[twin_key]
        del twins[block_hash]
        if not twins:
            del self._twins[twin_key]
