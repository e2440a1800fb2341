"""Recorded caches and the requests that the tests of explanations drive through them."""

from collections.abc import Iterable

from ratoon.explain.explainer import Explainer
from ratoon.explain.recorded_cache import RecordedCache
from ratoon.identity.extra_keys import ExtraKeys, MediaItem
from ratoon.identity.hash_chain import HashChain
from ratoon.request.explanation import Explanation
from ratoon.spec.cache_group import CacheGroupSpec

ROOT = bytes(32)
SIZE = 4


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Session:
    """A recorded cache with a clock of its own; requests are computed whole, in one step."""

    def __init__(self, *windows: int | None, num_blocks: int = 32, num_ghosts: int = 1000) -> None:
        self.clock = Clock()
        self.cache = RecordedCache(
            [CacheGroupSpec(window) for window in windows or (None,)],
            num_blocks=num_blocks,
            block_size=SIZE,
            num_ghosts=num_ghosts,
            clock=self.clock,
        )
        self.explainer = Explainer(self.cache)
        self.num_requests = 0

    def start(self, chain: HashChain, owner: str = "a", *, writes: bool = True) -> int:
        """Admit a request and leave it to be computed; return its id."""
        self.num_requests += 1
        match = self.cache.match(chain, chain.num_tokens)
        self.cache.owners[self.num_requests] = owner
        assert self.cache.reserve(self.num_requests, chain, chain.num_tokens, match, write_cache=writes)
        return self.num_requests

    def finish(self, request_id: int) -> None:
        """Compute a request to its end and release it."""
        self.cache.commit(request_id, self.cache.requests[request_id].chain.num_tokens)
        self.cache.release(request_id)
        del self.cache.owners[request_id]

    def serve(self, chain: HashChain, owner: str = "a", *, writes: bool = True) -> None:
        """Start and finish a request."""
        self.finish(self.start(chain, owner, writes=writes))

    def explain(self, chain: HashChain, owner: str = "a", *, reads: bool = True) -> Explanation:
        """Match a chain and explain what was found."""
        num_blocks = self.cache.match(chain, chain.num_tokens).num_blocks if reads else 0
        return self.explainer.explain(chain, chain.num_tokens, num_blocks, owner, reads_cache=reads)


def chain_of(
    tokens: Iterable[int],
    *,
    salt: str | None = None,
    adapter: bytes | None = None,
    image: bytes | None = None,
) -> HashChain:
    """Return a chain; an image stands at positions 1 and 2."""
    media = (MediaItem(image, 1, 2),) if image else ()
    return HashChain(ROOT, SIZE, ExtraKeys(adapter=adapter, salt=salt, media=media), tokens)
