"""`RequestBlocks`: the block tables of one request and how far they are filled."""

from collections.abc import Sequence

from ratoon.cache.match import Match
from ratoon.cache.pool import NULL_BLOCK
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import BlockTables


class RequestBlocks:
    """Written by the `CacheManager` only.

    `ids[g]` is the table of group g; all have the same length, `num_blocks`. The first `num_filled` blocks
    were hits or were committed. `num_computed` tokens need no more computing; after a full hit that is one
    less than are filled. Below `first_kept[g]`, where the window of the last filled position begins, the
    table of g has only null blocks. Blocks are keyed only while `epoch` is the cache's; None is no epoch's.
    `is_lost` after a failed step that was to compute blocks which the request took.
    """

    __slots__ = ("_tables", "chain", "epoch", "first_kept", "ids", "is_lost", "num_computed", "num_filled")

    def __init__(self, chain: HashChain, epoch: int | None, num_groups: int) -> None:
        self.chain = chain
        self.epoch = epoch
        self.ids: list[list[int]] = [[] for _ in range(num_groups)]
        self.first_kept = [0] * num_groups
        self.num_filled = 0
        self.num_computed = 0
        self.is_lost = False
        self._tables: BlockTables | None = None

    @property
    def num_blocks(self) -> int:
        """Length of every group's table."""
        return len(self.ids[0])

    def tables(self) -> BlockTables:
        """Return the tables; the same object until `touch` is called."""
        if self._tables is None:
            self._tables = tuple(map(tuple, self.ids))
        return self._tables

    def touch(self) -> None:
        """Say that `ids` changed."""
        self._tables = None

    def compare(self, match: Match, needed: Sequence[int]) -> tuple[list[int], list[list[int]]]:
        """Return the blocks that `take` would add, and those that it would give up, by group.

        Unfilled blocks are exchanged for the match's. `needed[g]` is the first block of group g that the
        position after the match sees; filled blocks before it are given up, too.
        """
        new = slice(self.num_filled, match.num_blocks)
        hits = [block_id for ids in match.block_ids for block_id in ids[new] if block_id]
        let_go = [
            ids[kept : min(first, self.num_filled)] + ids[new]
            for ids, kept, first in zip(self.ids, self.first_kept, needed, strict=True)
        ]
        return hits, let_go

    def take(self, match: Match, needed: Sequence[int]) -> None:
        """Put the blocks of a match into the tables, as `compare` tells."""
        new = slice(self.num_filled, match.num_blocks)
        for g, first in enumerate(needed):
            self.ids[g][new] = match.block_ids[g][new]
            self.leave_behind(g, first)
        self.num_filled = match.num_blocks
        self.num_computed = match.num_cached_tokens
        self.touch()

    def leave_behind(self, group: int, first: int) -> list[int]:
        """Put null blocks before logical block `first` and return the blocks that were there."""
        ids, kept = self.ids[group], self.first_kept[group]
        if first <= kept:
            return []
        behind = ids[kept:first]
        ids[kept:first] = [NULL_BLOCK] * len(behind)
        self.first_kept[group] = first
        self.touch()
        return behind
