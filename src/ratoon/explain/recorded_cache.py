"""`RecordedCache`: a `CacheManager` that writes down which blocks were used, stored and evicted."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from ratoon.cache.events import BlocksEvicted
from ratoon.cache.manager import CacheManager
from ratoon.cache.match import Match
from ratoon.explain.history import History
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import CacheGroupSpec


class RecordedCache(CacheManager):
    """Does what a `CacheManager` does, and writes a `history` of `num_ghosts` blocks that are gone.

    `owners` has the owner of each request that holds blocks.
    """

    def __init__(
        self,
        groups: Sequence[CacheGroupSpec],
        *,
        num_ghosts: int,
        clock: Callable[[], float] = time.perf_counter,
        **settings: Any,
    ) -> None:
        super().__init__(groups, **settings, record_events=True)
        self.history = History(self.pool, num_ghosts, clock=clock)
        self.owners: dict[int, str] = {}
        self._noted: dict[int, int] = {}

    def reserve(
        self,
        request_id: int,
        chain: HashChain,
        num_tokens: int,
        match: Match | None = None,
        *,
        keep_free: int = 0,
        write_cache: bool = True,
        owner: str = "",
    ) -> bool:
        """Reserve, and note what was evicted for it."""
        admitted = super().reserve(
            request_id, chain, num_tokens, match, keep_free=keep_free, write_cache=write_cache
        )
        if admitted:
            self.owners.setdefault(request_id, owner)
        for event in self.events.take():
            if isinstance(event, BlocksEvicted):
                self.history.note_evicted(event.groups, event.block_hashes, owner)
        return admitted

    def commit(self, request_id: int, num_computed: int) -> None:
        """Commit, and note the blocks that the request hit or stored since it was last asked."""
        stored_from = self._request(request_id).num_filled
        super().commit(request_id, num_computed)
        request = self._request(request_id)
        if self.is_caching and request.epoch == self.epoch:
            first = self._noted.get(request_id, 0)
            self._noted[request_id] = request.num_filled
            self._note_used(request_id, first, stored_from)

    def release(self, request_id: int) -> None:
        """Note the last use of the request's blocks, and release them."""
        self._note_used(request_id, 0, self._noted.pop(request_id, 0))
        super().release(request_id)
        self.owners.pop(request_id, None)

    def _note_used(self, request_id: int, first: int, stored_from: int) -> None:
        request = self._request(request_id)
        end = request.num_filled
        if request.epoch == self.epoch:
            self.history.note_used(
                request.chain,
                self.owners[request_id],
                first,
                end,
                stored_from=stored_from,
                epoch=self.epoch,
            )
