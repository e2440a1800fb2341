"""`Match`: the blocks that a request could build on, and the `Matcher` that finds them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from ratoon.cache.group import CacheGroup
from ratoon.cache.in_flight import InFlight
from ratoon.cache.pool import NULL_BLOCK, BlockPool
from ratoon.cache.stats import CacheStats
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import BlockTables

_log = logging.getLogger(__name__)

HASHES_AT_ONCE = 512
"""How many hashes are looked up before the next are fetched."""


@dataclass(frozen=True, slots=True)
class Match:
    """The answer of `CacheManager.match`: the same number of blocks in every group.

    `block_ids` has 0 for blocks that lie behind a group's window. A full hit, whose blocks cover every token
    asked for, counts as one token less, because the last one must be run for its logits. `limited_by` is
    the group that allowed no more, None if all full blocks were found; `missing_block` is the logical number
    of the block that it lacked to allow one block more. `reserve` takes a match until a key
    is dropped or a step fails; `as_of` tells.
    """

    num_cached_tokens: int
    num_blocks: int
    block_ids: BlockTables
    limited_by: int | None
    missing_block: int | None
    as_of: int


class Matcher:
    """Finds the longest prefix that is there in every group; changes only the counter of collisions."""

    def __init__(
        self,
        groups: Sequence[CacheGroup],
        block_size: int,
        pool: BlockPool,
        in_flight: InFlight,
        stats: CacheStats,
    ) -> None:
        self._groups = groups
        self._block_size = block_size
        self._pool = pool
        self._in_flight = in_flight
        self._stats = stats

    def find(self, chain: HashChain, num_tokens: int, max_blocks: int) -> Match:
        """Match at most `max_blocks` blocks of the first `num_tokens` tokens."""
        hashes = chain.block_hashes[:max_blocks]
        found = [self._look_up(g, hashes) for g in range(len(self._groups))]
        while True:
            num_blocks, limited_by = self._agree(found, max_blocks, num_tokens)
            num_cached = min(num_blocks * self._block_size, num_tokens - 1)
            firsts = [group.first_required(num_blocks, num_cached) for group in self._groups]
            if not self._strike_collision(found, firsts, num_blocks, chain):
                break
        missing = None
        if limited_by is not None:
            missing = self._groups[limited_by].missing_block(found[limited_by], num_blocks, num_tokens)
        return Match(
            num_cached_tokens=num_cached,
            num_blocks=num_blocks,
            block_ids=tuple(
                (NULL_BLOCK,) * first + tuple(ids[first:num_blocks])
                for first, ids in zip(firsts, found, strict=True)
            ),
            limited_by=limited_by,
            missing_block=missing,
            as_of=self._pool.num_dropped_keys + self._in_flight.num_abandoned,
        )

    def _look_up(self, group: int, hashes: Sequence[bytes]) -> list[int]:
        """Return a block for each hash, 0 where there is none; committed blocks before those in flight.

        Without a window nothing counts after the first that is missing, so what follows is not looked up.
        """
        committed = self._pool.indexes[group].first
        found: list[int] = []
        for start in range(0, len(hashes), HASHES_AT_ONCE):
            wanted = hashes[start : start + HASHES_AT_ONCE]
            blocks = list(map(committed.get, wanted, repeat(NULL_BLOCK)))
            self._in_flight.complete(group, wanted, blocks)
            found += blocks
            if self._groups[group].window is None and NULL_BLOCK in blocks:
                break
        return found + [NULL_BLOCK] * (len(hashes) - len(found))

    def _agree(self, found: Sequence[Sequence[int]], length: int, num_tokens: int) -> tuple[int, int | None]:
        """Shorten the hit until every group allows it; return its length and which group decided it."""
        limited_by = None
        settled = False
        while not settled:
            settled = True
            for g, group in enumerate(self._groups):
                allowed = group.longest_hit(found[g], length, num_tokens)
                if allowed < length:
                    length, limited_by, settled = allowed, g, False
        return length, limited_by

    def _strike_collision(
        self, found: Sequence[list[int]], firsts: Sequence[int], num_blocks: int, chain: HashChain
    ) -> bool:
        """Strike the first block that holds other tokens than the request's out of `found`, if any does."""
        records = self._pool.block_tokens
        for g, (ids, first) in enumerate(zip(found, firsts, strict=True)):
            expected = chain.block_tokens[first:num_blocks]
            if list(map(records.__getitem__, ids[first:num_blocks])) == expected:
                continue
            for i, record in enumerate(expected, first):
                block_id = ids[i]
                if record not in (records[block_id], self._in_flight.block_tokens.get(block_id)):
                    _log.warning(
                        "collision: block %d of group %d has the same key but other tokens", block_id, g
                    )
                    self._stats.num_collisions += 1
                    ids[i] = NULL_BLOCK
                    return True
        return False
