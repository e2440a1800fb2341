"""`KVAllocator`: gives requests their KV blocks, chunk by chunk.

The only part of the scheduler that talks to the cache, in this order per step: `admit` or `extend` for each
request that is planned, then `commit` for each after the step succeeded, or one `abandon`. `release` comes
between steps, or during planning for a request that is not in the plan.

A request asks for blocks only when its chunk passes the end of what it has, and commits only when the chunk
filled a block or built on new hits.
"""

from ratoon.cache.manager import CacheManager
from ratoon.cache.match import Match
from ratoon.errors import PoolTooSmallError
from ratoon.request.hit_limit import HitLimit, LimitReason
from ratoon.request.request import Request
from ratoon.sched.chunk import make_chunk
from ratoon.sched.observer import RequestObserver
from ratoon.step import ScheduledChunk


class KVAllocator:
    """Sole writer of the requests' progress in blocks and of their accounts of cached tokens."""

    def __init__(self, cache: CacheManager, max_chunk: int, observer: RequestObserver | None = None) -> None:
        self._cache = cache
        self._observer = observer
        self._max_chunk = max_chunk
        self._block_size = cache.block_size
        self._watermark = max(1, cache.num_usable_blocks // 100)
        self._to_commit: set[int] = set()

    def check_fits(self, num_tokens: int) -> None:
        """Raise `PoolTooSmallError` if a request of that many computed tokens would not fit even alone."""
        needed = self._blocks_for(num_tokens)
        if needed > self._cache.num_usable_blocks:
            raise PoolTooSmallError(
                f"The request may need {needed} KV blocks, but the pool has {self._cache.num_usable_blocks}.",
                hint="Lower max_tokens, shorten the prompt, or give the cache more memory (kv_cache_bytes).",
            )

    def admit(self, request: Request, budget: int, *, alone: bool) -> ScheduledChunk | None:
        """Take hits and slots for the first chunk of a request that holds nothing; None if there is no room.

        Unless it is `alone`, there must be room for all its known tokens, and a watermark of 1 % of the pool
        must stay free: else it would soon lose its blocks again to requests that are further on.
        """
        match = self._find(request)
        if request.limited_by is None:  # nothing was looked for
            reason = LimitReason.COMPLETE if request.reads_cache else LimitReason.NOT_READ
            request.limited_by = HitLimit(reason)
        num_known = request.num_known
        end = min(num_known, budget + (match.num_cached_tokens if match else 0))
        keep_free = 0 if alone else self._watermark + self._blocks_for(num_known) - self._blocks_for(end)
        resumed = request.first_scheduled_s is not None
        chunk = self._take(request, budget, match, keep_free)
        if chunk is not None:
            tokens = num_known if resumed else request.num_prompt_tokens
            self._cache.stats.record_query(tokens, preempted=resumed)
            if self._observer is not None and not resumed:
                self._observer.admitted(request, match)
        return chunk

    def extend(self, request: Request, budget: int, drafts: tuple[int, ...] = ()) -> ScheduledChunk | None:
        """Take slots for the next chunk of a running request; None, and nothing changed, if there is no room.

        A request with more than one token to go first looks whether others have computed some of them.
        Drafts come along if the chunk reaches them and there is room for all of them beside a further block
        for every other request: no request is preempted for a guess.
        """
        cache = self._cache
        match = self._find(request) if cache.is_sharing else None
        if drafts:
            keep_free = (len(cache.requests) - 1) * len(cache.groups)
            chunk = self._take(request, budget, match, keep_free, drafts)
            if chunk is not None:
                return chunk
        chunk = self._take(request, budget, match)
        if chunk is not None and match is not None and self._observer is not None:
            self._observer.gained(request, match)
        return chunk

    def commit(self, request: Request, num_computed: int) -> None:
        """Note that the step computed the request's positions below `num_computed`."""
        request.num_computed = num_computed
        if request.num_accounted < request.num_prompt_tokens:
            request.num_accounted = min(max(request.num_accounted, num_computed), request.num_prompt_tokens)
        if request.id in self._to_commit:
            self._to_commit.remove(request.id)
            self._cache.commit(request.id, num_computed)
            request.block_tables = self._cache.block_tables(request.id)

    def abandon(self) -> None:
        """Note that the step failed; its requests may only be released now."""
        self._to_commit.clear()
        self._cache.abandon()

    def release(self, request: Request) -> None:
        """Give everything back; what the request committed stays findable."""
        request.num_committed = self._cache.num_committed(request.id)
        self._cache.release(request.id)
        request.num_computed = request.num_reserved = 0
        request.block_tables = ()

    def num_uncommitted(self, request: Request) -> int:
        """Return how many of the request's computed tokens no other request can find."""
        return request.num_computed - min(request.num_computed, self._cache.num_committed(request.id))

    def _find(self, request: Request) -> Match | None:
        """Return a match that brings the request further than it has come by itself.

        Notes what limited it, at admission and whenever it brings more of the prompt.
        """
        num_known = request.num_known
        if num_known - request.num_computed == 1 or not request.reads_cache:
            return None
        match = self._cache.match(request.chain, num_known)
        prompt_part = min(match.num_cached_tokens, request.num_prompt_tokens)
        if not request.num_accounted or prompt_part > request.num_accounted:
            request.limited_by = self._limit_of(request, match)
        return match if match.num_cached_tokens > request.num_computed else None

    def _limit_of(self, request: Request, match: Match) -> HitLimit:
        if not self._cache.is_caching:
            return HitLimit(LimitReason.CACHE_OFF)
        if match.limited_by is None:
            return HitLimit(LimitReason.COMPLETE, match.num_cached_tokens)
        assert match.missing_block is not None, "the group that limited a match lacked a block"
        window = self._cache.groups[match.limited_by].window
        return HitLimit(
            LimitReason.FULL_ATTENTION if window is None else LimitReason.WINDOW,
            match.num_cached_tokens,
            match.limited_by,
            request.chain.block_hashes[match.missing_block],
            window,
        )

    def _take(
        self,
        request: Request,
        budget: int,
        match: Match | None,
        keep_free: int = 0,
        drafts: tuple[int, ...] = (),
    ) -> ScheduledChunk | None:
        size = self._block_size
        first = write_from = request.num_computed
        if match is not None:
            first, write_from = match.num_cached_tokens, match.num_blocks * size
        num_known = request.num_known
        end = min(num_known, first + budget)
        drafts = drafts[: first + budget - end] if end == num_known else ()
        reach = end + len(drafts)
        if match is not None or reach > request.num_reserved:
            if not self._cache.reserve(
                request.id, request.chain, reach, match, keep_free=keep_free, write_cache=request.write_cache
            ):
                return None
            request.num_reserved = max(request.num_reserved, -(-reach // size) * size)
            request.block_tables = self._cache.block_tables(request.id)
        if match is not None:
            self._credit(request, first)
        if reach // size > first // size or match is not None:
            self._cache.announce(request.id, end)
            self._to_commit.add(request.id)
        return make_chunk(request, first, end, write_from, drafts)

    def _credit(self, request: Request, num_cached: int) -> None:
        """Jump to `num_cached` computed positions and account for them.

        Prompt tokens that the request had never obtained before are hits, everything else re-hits.
        """
        prompt_part = min(num_cached, request.num_prompt_tokens)
        gained = max(0, prompt_part - request.num_accounted)
        request.num_accounted += gained
        request.num_cached += gained
        self._cache.stats.record_hit(gained)
        self._cache.stats.record_hit(num_cached - request.num_computed - gained, preempted=True)
        request.num_computed = num_cached

    def _blocks_for(self, num_tokens: int) -> int:
        return self._cache.blocks_for(num_tokens, self._max_chunk)
