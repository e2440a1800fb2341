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

    `owners` names the owner of each request, as long as there is one; it is written from outside.
    """

    def __init__(
        self,
        groups: Sequence[CacheGroupSpec],
        *,
        num_ghosts: int,
        clock: Callable[[], float] = time.perf_counter,
        **settings: Any,
    ) -> None:
        super().__init__(groups, **settings)
        self.history = History(self.pool, num_ghosts, clock=clock)
        self.owners: dict[int, str] = {}
        self._evictions = self.events.subscribe()
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
    ) -> bool:
        """Reserve, and note what was evicted for it."""
        num_evicted = self.stats.num_evicted_blocks
        is_admitted = super().reserve(
            request_id, chain, num_tokens, match, keep_free=keep_free, write_cache=write_cache
        )
        if self.stats.num_evicted_blocks > num_evicted:
            for event in self._evictions.read().events:
                if isinstance(event, BlocksEvicted):
                    self.history.note_evicted(event.groups, event.block_hashes, self._owner(request_id))
        return is_admitted

    def commit(self, request_id: int, num_computed: int) -> None:
        """Commit, and note the blocks that the request hit or stored since its last commit."""
        stored_from = self._request(request_id).num_filled
        super().commit(request_id, num_computed)
        first = self._noted.get(request_id, 0)
        self._noted[request_id] = self._request(request_id).num_filled
        self._note_used(request_id, first, stored_from)

    def release(self, request_id: int) -> None:
        """Note the last use of the request's blocks, and release them."""
        self._note_used(request_id, 0, self._noted.pop(request_id, 0))
        super().release(request_id)

    def _note_used(self, request_id: int, first: int, stored_from: int) -> None:
        request = self._request(request_id)
        if self.is_caching and request.epoch == self.epoch:
            self.history.note_used(
                request.chain,
                self._owner(request_id),
                first,
                self._noted.get(request_id, stored_from),
                stored_from=stored_from,
                epoch=self.epoch,
            )

    def _owner(self, request_id: int) -> str:
        return self.owners.get(request_id, "")
