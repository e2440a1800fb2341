"""`RequestBlocks`: the block tables of one request and how far they are filled."""

from ratoon.cache.match import BlockTables
from ratoon.identity.hash_chain import HashChain


class RequestBlocks:
    """Written by the `CacheManager` only.

    `ids[g]` is the table of group g; all have the same length, `num_blocks`. The first `num_filled` blocks
    were hits or were committed. `num_computed` tokens need no more computing; after a full hit that is one
    less than are filled. Below `first_kept[g]` the table of g has only null blocks. Blocks are keyed only
    while `epoch` is the cache's; None is no epoch's. `is_lost` after a failed step that was to compute
    blocks which the request took.
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
