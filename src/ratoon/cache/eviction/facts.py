"""`BlockFacts`: what a policy may know of a block besides its id."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

EVEN_COST_TOKENS = 4096
"""Position at which attention costs about as much as everything else in a model of a few hundred million
parameters; beyond it most of a block's recompute cost is attention."""


class Chain(Protocol):
    """Of a hash chain, what names its blocks."""

    root: bytes
    block_hashes: list[bytes]


class BlockFacts:
    """Flat lists by block id, written by the `CacheManager` when a block gets its key.

    `keys[b]` tells blocks apart by content and cache group, `parents[b]` is the key of the block before it,
    `depths[b]` its logical number. They are kept only if the policy called `keep`, and mean something while
    the block has a key. `clock` gives seconds from any fixed moment.
    """

    def __init__(self, num_blocks: int, block_size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.clock = clock
        self.is_kept = False
        self.keys: list[bytes] = []
        self.parents: list[bytes] = []
        self.depths: list[int] = []

    def keep(self) -> None:
        """Ask for the lists; to be called when the policy is made."""
        self.is_kept = True
        self.keys = [b""] * self.num_blocks
        self.parents = [b""] * self.num_blocks
        self.depths = [0] * self.num_blocks

    def enter(self, group: int, block_ids: Sequence[int], chain: Chain, first: int) -> None:
        """Note that these blocks hold the chain's blocks from number `first` on."""
        suffix = bytes((group,)) if group else b""
        hashes = chain.block_hashes
        parent = (hashes[first - 1] if first else chain.root) + suffix
        keys, parents, depths = self.keys, self.parents, self.depths
        for depth, block_id in enumerate(block_ids, first):
            key = hashes[depth] + suffix
            keys[block_id], parents[block_id], depths[block_id] = key, parent, depth
            parent = key

    def cost(self, block_id: int) -> float:
        """Return what computing the block again costs, as a multiple of what the first one costs."""
        return 1 + self.depths[block_id] * self.block_size / EVEN_COST_TOKENS
