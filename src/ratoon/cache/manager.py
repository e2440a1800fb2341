"""`CacheManager`: the face of the cache, and the order in which its parts act.

While a step is planned, the scheduler calls `match`, `reserve` and `announce` for one request after
another; when the step has succeeded, `commit` for each of them; when it failed, `abandon` once. `release`
ends a request's stay, preemption included. The manager is used from one thread and knows a request only by
its number and its hash chain.
"""

import itertools
from collections.abc import Callable, Sequence

from ratoon.cache.events import CacheReset, EventBus
from ratoon.cache.eviction import EvictionPolicy, LeastRecentlyUsed
from ratoon.cache.group import CacheGroup
from ratoon.cache.in_flight import InFlight
from ratoon.cache.match import Match, Matcher
from ratoon.cache.pool import BlockPool
from ratoon.cache.request_blocks import RequestBlocks
from ratoon.cache.snapshot import CacheSnapshot
from ratoon.cache.stats import CacheStats
from ratoon.errors import InvalidParameterError
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import BlockTables, CacheGroupSpec
from ratoon.spec.kv_budget import blocks_for

EVENTS_KEPT = 16_384
"""Events that a follower may be behind before it has to start again."""


class CacheManager:
    """All blocks, keys and tables. Sole writer of the tables.

    `groups` share one pool of `num_blocks` block ids, of which id 0 is the null block. `share_in_flight`
    lets requests of one step share what that step computes; without `enable_prefix_caching` nothing is
    keyed or matched. `events` tells what happens to keys. Raises `InvalidParameterError`.
    """

    def __init__(
        self,
        groups: Sequence[CacheGroupSpec],
        *,
        num_blocks: int,
        block_size: int,
        share_in_flight: bool = True,
        enable_prefix_caching: bool = True,
        eviction: Callable[[], EvictionPolicy] = LeastRecentlyUsed,
    ) -> None:
        _check_geometry(groups, num_blocks, block_size)
        self._specs = tuple(groups)
        self.block_size = block_size
        self.groups = tuple(CacheGroup(spec, block_size) for spec in groups)
        self.stats = CacheStats()
        self.events = EventBus(self.stats, EVENTS_KEPT)
        self.pool = BlockPool(num_blocks, len(groups), eviction(), self.events)
        self.in_flight = InFlight(len(groups))
        self.requests: dict[int, RequestBlocks] = {}
        self.is_caching = enable_prefix_caching
        self.is_sharing = enable_prefix_caching and share_in_flight
        self._matcher = Matcher(self.groups, block_size, self.pool, self.in_flight, self.stats)
        self._sliding = [g for g, group in enumerate(self.groups) if group.window is not None]

    @property
    def epoch(self) -> int:
        """Counts resets; what was admitted before the last one is neither keyed nor matched any more."""
        return self.events.epoch

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that all requests together can hold: all but the null block."""
        return self.pool.num_blocks - 1

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be handed out now, idle ones included."""
        return self.pool.num_free

    def blocks_for(self, num_tokens: int, max_chunk: int | None = None) -> int:
        """Return how many blocks a request that grows to `num_tokens` holds at most, over all groups.

        `max_chunk` is the greatest number of tokens that it reserves ahead of what it has computed, None if
        it reserves everything at once. A request fits into an otherwise empty cache if this is at most
        `num_usable_blocks`.
        """
        return blocks_for(self._specs, self.block_size, num_tokens, max_chunk)

    def match(self, chain: HashChain, num_tokens: int) -> Match:
        """Find the longest prefix of the first `num_tokens` known tokens that is there in every group; pure.

        Committed blocks are found, and those announced for the step being planned. The tokens of every
        block are compared with the request's; a difference is counted and logged as a collision and taken
        for a miss. At most `num_tokens` - 1 tokens count as cached.
        """
        assert 0 < num_tokens <= chain.num_tokens, "only known tokens can be matched"
        assert chain.block_size == self.block_size, "chain and cache cut the tokens alike"
        return self._matcher.find(chain, num_tokens, num_tokens // self.block_size if self.is_caching else 0)

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
        """Give the request slots for all positions below `num_tokens`, or change nothing and return False.

        The first call for an id admits it: it takes the blocks of `match`, then new ones, group by group.
        Later calls grow it. A later call whose match has more blocks than the request has filled exchanges
        its unfilled blocks for the match's. Filled blocks, hits among them, must not be written again.
        False means that fewer than `keep_free` blocks would be left over. What a request admitted without
        `write_cache` computes is never found by others.
        """
        request = self.requests.get(request_id)
        if request is None:
            request = RequestBlocks(chain, self.epoch if write_cache else None, len(self.groups))
        assert request.chain is chain, "a request has one chain for as long as it holds blocks"
        assert not request.is_lost, "after a failed step, a request that built on it can only be released"
        num_wanted = -(-num_tokens // self.block_size)
        if match is not None and match.num_blocks > request.num_filled:
            admitted = self._take(request_id, request, match, num_wanted, keep_free)
        else:
            admitted = self._grow(request, num_wanted, keep_free)
        if admitted:
            self.requests[request_id] = request
        return admitted

    def block_tables(self, request_id: int) -> BlockTables:
        """Return the request's tables; the same object until they change."""
        return self._request(request_id).tables()

    def announce(self, request_id: int, num_tokens: int) -> None:
        """Say that the step being planned computes the request's positions below `num_tokens`.

        Until `commit` or `abandon`, the full blocks of known tokens among them are found by `match`. Does
        nothing where sharing in flight is off. A request with announced blocks must not be released before
        one of the two.
        """
        request = self._request(request_id)
        if not self.is_sharing or request.epoch != self.epoch:
            return
        chain = request.chain
        new = slice(request.num_filled, min(num_tokens // self.block_size, len(chain.block_hashes)))
        if new.start < new.stop:
            for g, ids in enumerate(request.ids):
                self.in_flight.announce(
                    request_id, g, ids[new], chain.block_hashes[new], chain.block_tokens[new]
                )

    def commit(self, request_id: int, num_computed: int) -> None:
        """Record that KV of all positions below `num_computed` is written, by a step that succeeded.

        Newly full blocks are keyed, unless the cache was reset since the request was admitted. Blocks that
        the last full block's last position does not see any more are let go and keep their keys. So the
        request always holds what others need to build on all its full blocks.
        """
        request = self._request(request_id)
        chain = request.chain
        assert not request.is_lost, "a failed step is not committed"
        assert request.num_computed <= num_computed <= chain.num_tokens, "known tokens are computed, in order"
        self.in_flight.settle(request_id)
        new = slice(request.num_filled, num_computed // self.block_size)
        if new.start < new.stop:
            if self.is_caching and request.epoch == self.epoch:
                for g, ids in enumerate(request.ids):
                    self.pool.store(g, ids[new], chain.block_hashes[new], chain.block_tokens[new])
            request.num_filled = new.stop
            for g in self._sliding:
                behind = request.leave_behind(g, self.groups[g].first_needed(new.stop * self.block_size - 1))
                self.pool.release(behind[::-1])
        request.num_computed = num_computed

    def abandon(self) -> None:
        """Record that the step failed: nothing it announced is found any more.

        Requests that took announced blocks hold blocks that were never computed, and can only be released.
        """
        for request_id in self.in_flight.abandon():
            self.requests[request_id].is_lost = True

    def num_committed(self, request_id: int) -> int:
        """Return how many tokens of a request others can find now; 0 where it leaves no trace.

        As long as the request holds its blocks, any prompt that goes on from these tokens hits them all.
        """
        request = self._request(request_id)
        findable = self.is_caching and request.epoch == self.epoch
        return request.num_filled * self.block_size if findable else 0

    def release(self, request_id: int) -> None:
        """Let go of all blocks of a request; raises `KeyError` if it holds none.

        Unfilled blocks go back the way they came, so that an admission which computed nothing leaves the
        queue as it was. Filled ones go deepest first, and at each depth in all groups, because a hit needs
        all groups.
        """
        request = self._request(request_id)
        assert not self.in_flight.has_announced(request_id), "commit or abandon comes before release"
        self.in_flight.settle(request_id)
        del self.requests[request_id]
        filled = request.num_filled
        for ids in reversed(request.ids):
            self.pool.release(ids[filled:][::-1])
        rows = zip(*(reversed(ids[:filled]) for ids in request.ids), strict=True)
        self.pool.release(list(filter(None, itertools.chain.from_iterable(rows))))  # without null blocks

    def reset(self) -> CacheReset:
        """Drop every key. Running requests keep their blocks, but these are never keyed or matched again."""
        self.in_flight.withdraw_all()
        return self.events.reset(self.pool.drop_all_keys())

    def snapshot(self) -> CacheSnapshot:
        """Return what the index holds now, for a follower of the events to start from."""
        return CacheSnapshot(self.epoch, self.events.next_event, tuple(self.pool.keys()))

    def _request(self, request_id: int) -> RequestBlocks:
        try:
            return self.requests[request_id]
        except KeyError:
            raise KeyError(f"request {request_id} holds no blocks") from None

    def _grow(self, request: RequestBlocks, num_wanted: int, keep_free: int) -> bool:
        num_new = num_wanted - request.num_blocks
        if num_new <= 0:
            return True
        if self.pool.num_free - num_new * len(self.groups) < keep_free:
            return False
        for ids in request.ids:
            ids += self.pool.allocate(num_new)
        request.touch()
        return True

    def _take(
        self, request_id: int, request: RequestBlocks, match: Match, num_wanted: int, keep_free: int
    ) -> bool:
        """Exchange unfilled blocks for hits, let go what the new position does not see, and grow."""
        now = self.pool.num_dropped_keys + self.in_flight.num_abandoned
        assert match.as_of == now, "the match is out of date"
        assert not self.in_flight.has_announced(request_id), "a request is planned once in a step"
        needed = [group.first_required(match.num_blocks, match.num_cached_tokens) for group in self.groups]
        hits, let_go = request.compare(match, needed)
        num_new = max(0, num_wanted - max(match.num_blocks, request.num_blocks)) * len(self.groups)
        num_gained = sum(self.pool.count_refs(ids, 1) for ids in let_go) - self.pool.count_refs(hits, 0)
        if self.pool.num_free + num_gained - num_new < keep_free:
            return False

        self.in_flight.borrow(request_id, hits)
        self.pool.pin(hits)
        for ids in reversed(let_go):
            self.pool.release(ids[::-1])
        request.take(match, needed)
        return self._grow(request, num_wanted, keep_free)


def _check_geometry(groups: Sequence[CacheGroupSpec], num_blocks: int, block_size: int) -> None:
    if not groups:
        raise InvalidParameterError("A cache needs at least one group.")
    for group in groups:
        if group.window is not None and group.window < 1:
            raise InvalidParameterError(f"A window must hold at least 1 token, not {group.window}.")
    if block_size < 1:
        raise InvalidParameterError(f"A block must hold at least 1 token, not {block_size}.")
    if num_blocks < 2:
        raise InvalidParameterError(
            f"A cache must have at least 2 blocks, not {num_blocks}.",
            hint="Block 0 is the null block and holds nothing.",
        )
