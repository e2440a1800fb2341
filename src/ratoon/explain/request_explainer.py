"""`RequestExplainer`: explains every request when it is admitted, and counts what the explanations say."""

from collections import Counter

from ratoon.cache.match import Match
from ratoon.explain.explainer import Explainer
from ratoon.explain.recorded_cache import RecordedCache
from ratoon.identity.hash_chain import HashChain
from ratoon.request.explanation import Explanation, MissReason
from ratoon.request.request import Request


class RequestExplainer:
    """Told by the scheduler of each request from arrival to end; a `RequestObserver` (sched/observer.py).

    `num_ideal_tokens` counts the prompt tokens that a cache which never forgot would have had, over all
    admissions, beside the cache's own counters of queries and hits. `num_missed_tokens` counts the others
    by reason.
    """

    def __init__(self, cache: RecordedCache) -> None:
        self.num_ideal_tokens = 0
        self.num_missed_tokens: Counter[MissReason] = Counter()
        self._cache = cache
        self._explainer = Explainer(cache)

    def arrived(self, request: Request) -> None:
        """Learn whose request it is."""
        self._cache.owners[request.id] = request.tenant

    def admitted(self, request: Request, match: Match | None) -> None:
        """Explain a request that was admitted for the first time with this match, None without a hit."""
        num_tokens, chain = request.num_prompt_tokens, request.chain
        num_seen = self._cache.history.num_seen(chain, num_tokens // self._cache.block_size)
        explanation = self._explain(request, match)
        num_cached = explanation.num_cached_tokens
        ideal = min(num_seen * self._cache.block_size, num_tokens - 1)
        self.num_ideal_tokens += max(num_cached, ideal)
        self.num_missed_tokens[explanation.reason] += num_tokens - num_cached

    def gained(self, request: Request, match: Match) -> None:
        """Explain a request again that found more of its prompt while it was being computed."""
        before = request.explanation
        if before is not None and not request.num_generated:
            after = self._explain(request, match)
            self.num_missed_tokens[before.reason] -= before.num_prompt_tokens - before.num_cached_tokens
            self.num_missed_tokens[after.reason] += after.num_prompt_tokens - after.num_cached_tokens

    def ended(self, request: Request) -> None:
        """Forget whose request it was."""
        self._cache.owners.pop(request.id, None)

    def explain_prompt(self, chain: HashChain, owner: str) -> Explanation:
        """Explain what a prompt would find now, without running it."""
        match = self._cache.match(chain, chain.num_tokens)
        return self._explainer.explain(chain, chain.num_tokens, match.num_blocks, owner)

    def _explain(self, request: Request, match: Match | None) -> Explanation:
        request.explanation = self._explainer.explain(
            request.chain,
            request.num_prompt_tokens,
            0 if match is None else match.num_blocks,
            request.tenant,
            reads_cache=request.reads_cache,
        )
        return request.explanation
