"""Ratoon's cache manager at one long prompt: computed the first time, found the second time."""

import time
from itertools import count

from ratoon.cache.manager import CacheManager
from ratoon.identity.hash_chain import HashChain
from ratoon.spec.cache_group import CacheGroupSpec


class CacheCycle:
    """A manager whose pool has room for two prompts, so that from the third on blocks must be evicted."""

    def __init__(self, num_tokens: int, block_size: int) -> None:
        num_blocks = 2 * (num_tokens // block_size) + 1
        self._cache = CacheManager([CacheGroupSpec()], num_blocks=num_blocks, block_size=block_size)
        self._ids = count()

    def run(self, tokens: list[int]) -> dict[str, float]:
        """Return the seconds of each operation. `tokens` were not seen before."""
        cold = self._admit(tokens, "miss")
        warm = self._admit([*tokens[:-1], tokens[-1] ^ 1], "hit")
        return cold | warm

    def _admit(self, tokens: list[int], kind: str) -> dict[str, float]:
        cache, request_id, num_tokens = self._cache, next(self._ids), len(tokens)
        begun = time.perf_counter()
        chain = HashChain(bytes(32), cache.block_size, tokens=tokens)
        hashed = time.perf_counter()
        match = cache.match(chain, num_tokens)
        matched = time.perf_counter()
        assert match.num_cached_tokens == (num_tokens - cache.block_size if kind == "hit" else 0)
        cache.reserve(request_id, chain, num_tokens, match)
        cache.announce(request_id, num_tokens)
        cache.commit(request_id, num_tokens)
        allocated = time.perf_counter()
        cache.release(request_id)
        freed = time.perf_counter()
        return {
            f"{kind}: hash": hashed - begun,
            f"{kind}: match": matched - hashed,
            f"{kind}: allocate": allocated - matched,
            f"{kind}: free": freed - allocated,
        }
