"""`Explainer`: finds the first block that a prompt did not get from the cache, and says why.

Reasons are looked for from the certain to the likely: what the request and its length rule out; then, for
the first missing block, whether it is being computed, was evicted or reset; then whether the same tokens
are known under another salt, adapter or input rows; then the nearest relative. If nothing shows a reason,
the block was never seen.
"""

import struct
from dataclasses import dataclass, replace

from ratoon.explain.history import RememberedBlock
from ratoon.explain.recorded_cache import RecordedCache
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.explanation import Eviction, Explanation, MissReason, Pressure, Relative

CONTEXT = 6
"""Tokens shown on either side of a difference."""


class Explainer:
    """Asks a cache and its history, and changes neither. Used from the engine's thread."""

    def __init__(self, cache: RecordedCache) -> None:
        self._cache = cache
        self._history = cache.history

    def explain(
        self,
        chain: HashChain,
        num_tokens: int,
        num_blocks: int,
        owner: str = "",
        *,
        reads_cache: bool = True,
    ) -> Explanation:
        """Say why a match of `num_blocks`, made for the first `num_tokens` of a chain, did not go further.

        Only blocks of the owner's serve as evidence.
        """
        num_cached = min(num_blocks * self._cache.block_size, num_tokens - 1)
        reason = self._ruled_out(num_tokens, num_blocks, reads_cache=reads_cache)
        if reason is not None:
            return Explanation(reason, num_tokens, num_cached)
        missing = self._first_missing(chain, num_tokens, num_blocks)
        history, size = self._history, self._cache.block_size
        num_remembered = history.num_seen(chain, num_tokens // size, owner) * size
        now, forgotten = history.clock(), history.forgotten_until_s
        return replace(
            self._explain_block(chain, owner, missing, num_blocks),
            num_prompt_tokens=num_tokens,
            num_cached_tokens=num_cached,
            block=missing.block,
            group=missing.group,
            window=None if missing.group is None else self._cache.groups[missing.group].window,
            num_remembered_tokens=max(num_cached, min(num_remembered, num_tokens - 1)),
            record_s=None if forgotten is None else now - forgotten,
        )

    def _ruled_out(self, num_tokens: int, num_blocks: int, *, reads_cache: bool) -> MissReason | None:
        """Return the reason where it follows from the request and the match alone."""
        if not self._cache.is_caching:
            return MissReason.CACHING_OFF
        if not reads_cache:
            return MissReason.READ_DISABLED
        size = self._cache.block_size
        if num_blocks < num_tokens // size:
            return None
        return MissReason.BELOW_ONE_BLOCK if num_tokens % size else MissReason.ONLY_LAST_TOKEN

    def _first_missing(self, chain: HashChain, num_tokens: int, num_blocks: int) -> "_Missing":
        """Return the block that kept a match of `num_blocks` from being longer.

        That is the next one, or, where full attention has it, one that a window sees before the end of what
        is there: the last of those that are missing.
        """
        groups, hashes = self._cache.groups, chain.block_hashes
        is_stored = self._history.is_stored
        for g, group in enumerate(groups):
            if group.window is None and not is_stored(hashes[num_blocks], g):
                return _Missing(num_blocks, g)
        end, size = num_blocks, self._cache.block_size
        while end < num_tokens // size and is_stored(hashes[end]):
            end += 1
        for g, group in enumerate(groups):
            first = group.first_required(end, min(end * size, num_tokens - 1))
            for block in reversed(range(first, end)):
                if not is_stored(hashes[block], g):
                    return _Missing(block, g, is_behind_window=True)
        return _Missing(num_blocks, None if end > num_blocks else 0)

    def _explain_block(
        self, chain: HashChain, owner: str, missing: "_Missing", num_blocks: int
    ) -> Explanation:
        """Return the reason for a missing block, with what shows it."""
        group = missing.group
        if group is None:  # every group has it: its tokens were others', a collision
            return _because(MissReason.UNKNOWN)
        block_hash = chain.block_hashes[missing.block]
        remembered = self._history.get(block_hash, owner)
        eviction = None if remembered is None else self._eviction(remembered, group, owner)
        if missing.is_behind_window:
            return _because(MissReason.WINDOW, eviction=eviction)
        if self._is_computed(chain, missing.block, owner):
            return _because(MissReason.STILL_COMPUTED)
        if eviction is not None:
            return _because(MissReason.EVICTED, eviction=eviction)
        if remembered is not None:
            was_reset = remembered.epoch < self._cache.epoch
            return _because(MissReason.RESET if was_reset else MissReason.UNKNOWN)
        return self._by_twin(chain, num_blocks, owner) or self._by_relative(chain, num_blocks, owner)

    def _eviction(self, remembered: RememberedBlock, group: int, owner: str) -> Eviction | None:
        gone = remembered.gone.get(group)
        if gone is None:
            return None
        pressure = Pressure.OWN if gone.owner == owner else Pressure.OTHERS
        return Eviction(self._history.clock() - gone.moment_s, gone.idle_s, pressure)

    def _is_computed(self, chain: HashChain, block: int, owner: str) -> bool:
        """Say whether another request of the owner's has this block ahead of it and will store it."""
        cache, block_hash = self._cache, chain.block_hashes[block]
        for request_id, request in cache.requests.items():
            hashes = request.chain.block_hashes
            if (
                cache.owners.get(request_id, "") == owner
                and request.epoch == cache.epoch
                and request.num_filled <= block < len(hashes)
                and hashes[block] == block_hash
                and request.chain is not chain
            ):
                return True
        return False

    def _by_twin(self, chain: HashChain, block: int, owner: str) -> Explanation | None:
        """Explain by a block of the same tokens after the same prefix that something else sets apart."""
        history, size, records = self._history, chain.block_size, chain.block_tokens
        found = history.twins(_parent(chain, block), owner, records[block])
        if not found:
            return None
        block_hash, twin = min(found, key=lambda each: _differences(chain.extra_keys, each[1].extra_keys))
        reason = _differences(chain.extra_keys, twin.extra_keys)[1]
        end = block + 1
        while end < len(records) and (further := history.twins(block_hash, owner, records[end])):
            block_hash, end = further[0][0], end + 1
        return _because(
            reason, relative=self._relative(chain, end * size, block * size, (), block_hash, twin)
        )

    def _by_relative(self, chain: HashChain, block: int, owner: str) -> Explanation:
        """Explain by the block after the same prefix that is the most alike."""
        size, tokens = chain.block_size, chain.block_tokens[block]
        start = block * size
        extras = chain.extra_keys.encode_block(start, start + size)
        num_common, near = self._history.nearest(_parent(chain, block), owner, extras, tokens)
        position = start + num_common
        if near is None or not position:
            return _because(MissReason.NEVER_SEEN)
        block_hash, relative = near
        other = struct.unpack(f"<{size}I", relative.tokens)[num_common : num_common + CONTEXT]
        return _because(
            MissReason.DIVERGED,
            relative=self._relative(chain, position, position, other, block_hash, relative),
        )

    def _relative(
        self,
        chain: HashChain,
        num_common: int,
        position: int,
        other: tuple[int, ...],
        block_hash: bytes,
        block: RememberedBlock,
    ) -> Relative:
        own = chain.tokens[position : position + CONTEXT] if other else ()
        return Relative(
            num_common_tokens=num_common,
            position=position,
            before=tuple(chain.tokens[max(0, position - CONTEXT) : position]),
            own=tuple(own),
            other=other,
            is_stored=self._history.is_stored(block_hash),
            last_used_ago_s=self._history.clock() - block.last_used_s,
        )


@dataclass(frozen=True, slots=True)
class _Missing:
    """A logical block that `group` lacks; None where every group has one."""

    block: int
    group: int | None
    is_behind_window: bool = False


def _because(
    reason: MissReason, *, relative: Relative | None = None, eviction: Eviction | None = None
) -> Explanation:
    return Explanation(reason, 0, 0, relative=relative, eviction=eviction)


def _parent(chain: HashChain, block: int) -> bytes:
    return chain.block_hashes[block - 1] if block else chain.root


def _differences(own: ExtraKeys, other: ExtraKeys) -> tuple[int, MissReason]:
    """Return how many things set two blocks of equal tokens and parents apart, and one of them."""
    found = []
    if own.adapter != other.adapter:
        found.append(MissReason.ADAPTER)
    if own.salt != other.salt:
        found.append(MissReason.SALT)
    if own.media != other.media:
        found.append(MissReason.INPUT_ROWS)
    return len(found), found[0]
