"""`DraftModel`: a smaller model with a block pool and a prefix cache of its own guesses.

`propose` works in this order: every request's state takes in the tokens that became known; one step computes
what the draft model has not seen of the requests it guesses for and samples a first draft; further steps, one
per draft, sample the others. Drafts stand in slots after the known tokens. Those that turn out right need not
be computed again, those that were wrong are overwritten, and only blocks of known tokens are committed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ratoon.cache.manager import CacheManager
from ratoon.draft.drafter import Guess
from ratoon.draft.estimates import StepCost
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.chunk import sample_spec
from ratoon.step import Runner, ScheduledChunk, StepPlan

MAX_BEHIND = 64
"""A request with at most so many tokens to compute is guessed for in the same step; others in the next."""


class DraftModel:
    """The `Drafter` that runs a model. It samples as the request does, with the same random numbers.

    It alone uses `cache` and `runner`. `root` begins its chains, `max_model_len` bounds its positions, and
    `max_chunk` the known tokens that it computes in one step. A request with input rows is not
    guessed for, and a request for which the pool has no room has to wait.
    """

    is_free = False

    def __init__(
        self,
        cache: CacheManager,
        runner: Runner,
        *,
        root: bytes,
        max_model_len: int,
        max_chunk: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.cache = cache
        self._runner = runner
        self._root = root
        self._max_model_len = max_model_len
        self._max_chunk = max_chunk
        self._states: dict[int, _DraftState] = {}
        self._ended: list[int] = []  # states that were dropped since the last plan
        self._num_steps = 0
        self._clock = clock
        self._cost = StepCost()

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Guess]:
        """See `Drafter`."""
        self._keep_only({request.id for request, _ in wanted})
        budget = self._max_chunk
        chunks: list[ScheduledChunk] = []
        for request, count in wanted:
            chunk = self._catch_up(request, count, budget) if count and budget else None
            if chunk is not None:
                chunks.append(chunk)
                budget -= len(chunk.token_ids)
        counts = {request.id: count for request, count in wanted}
        drafts: dict[int, list[int]] = {chunk.request_id: [] for chunk in chunks}
        while chunks:
            self._run(chunks, drafts)
            chunks = [
                following(chunk, drafts[chunk.request_id][-1])
                for chunk in chunks
                if chunk.sample is not None and len(drafts[chunk.request_id]) < counts[chunk.request_id]
            ]
        return [Guess(drafts.get(request.id, ())) for request, _ in wanted]

    def round_seconds(self, num_requests: int) -> float:
        """See `Drafter`."""
        return self._cost.seconds(num_requests)

    def reset(self) -> None:
        """See `Drafter`."""
        self._keep_only(set())

    def reset_cache(self) -> None:
        """See `Drafter`."""
        self.cache.reset()

    def _catch_up(self, request: Request, count: int, budget: int) -> ScheduledChunk | None:
        """Take slots and describe what is to be computed before the first of `count` drafts.

        The chunk does not sample where it stops short of that.
        """
        known = request.num_known
        if request.rows or known + count - 1 > self._max_model_len:
            return None
        state = self._states.get(request.id)
        if state is None:  # kept even if there is no room yet: its hashes are expensive
            state = self._states[request.id] = _DraftState.of(request, self._root)
        state.follow(request)
        chain = state.chain
        first, write_from = min(state.num_computed, known - 1), state.num_computed
        match = None
        if not state.num_computed and request.reads_cache:
            match = self.cache.match(chain, known)
            first, write_from = match.num_cached_tokens, match.num_blocks * chain.block_size
        is_near = known - first <= min(budget, MAX_BEHIND)
        end = known if is_near else min(known, first + budget)
        reach = known + count - 1 if is_near else end  # the last draft is not run
        if not self.cache.reserve(request.id, chain, reach, match, write_cache=request.write_cache):
            return None
        if match is not None:
            self.cache.stats.record_query(known, preempted=False)
            self.cache.stats.record_hit(first, preempted=False)
        sample = None
        if is_near:
            sample = sample_spec(request, state.num_told)._replace(params=state.params)
            state.num_told = known
        return ScheduledChunk(
            request_id=request.id,
            token_ids=tuple(chain.tokens[first:end]),
            first_position=first,
            write_from=write_from,
            block_tables=self.cache.block_tables(request.id),
            sample=sample,
        )

    def _run(self, chunks: Sequence[ScheduledChunk], drafts: dict[int, list[int]]) -> None:
        """Compute a step and add what it sampled to the drafts."""
        self._num_steps += 1
        plan = StepPlan(self._num_steps, tuple(chunks), tuple(self._ended))
        self._ended.clear()
        begun = self._clock()
        result = self._runner.execute(plan)
        if plan.num_tokens <= 2 * len(chunks):  # the last draft and the token after it: nothing to catch up
            self._cost.add(len(chunks), self._clock() - begun)
        for chunk, found in zip(chunks, result.chunks, strict=True):
            state = self._states[chunk.request_id]
            end = chunk.first_position + len(chunk.token_ids)
            if end <= state.chain.num_tokens:
                state.num_computed = end
                self.cache.commit(chunk.request_id, end)
            else:
                state.drafts += chunk.token_ids
            drafts[chunk.request_id] += found.token_ids

    def _keep_only(self, request_ids: set[int]) -> None:
        for request_id in self._states.keys() - request_ids:
            del self._states[request_id]
            self._ended.append(request_id)
            if request_id in self.cache.requests:
                self.cache.release(request_id)


@dataclass(slots=True)
class _DraftState:
    """A request as the draft model sees it.

    `num_computed` positions hold K and V of the chain's tokens. `drafts` were run after the chain's last
    token, when all of it was computed. The runner has been told the first `num_told` tokens for penalties.
    """

    chain: HashChain
    params: SamplingParams
    num_computed: int = 0
    drafts: tuple[int, ...] = ()
    num_told: int = 0

    @classmethod
    def of(cls, request: Request, root: bytes) -> "_DraftState":
        """Begin with a new request. The draft model has no adapters; salts separate its blocks too."""
        extra_keys = ExtraKeys(salt=request.chain.extra_keys.salt)
        chain = HashChain(root, request.chain.block_size, extra_keys)
        params = replace(request.params, logprobs=None, prompt_logprobs=None, structured_outputs=None)
        return cls(chain, params)

    def follow(self, request: Request) -> None:
        """Take in what became known. Of the drafts that were run, those that were right are computed."""
        news = request.chain.tokens[self.chain.num_tokens :]
        for draft, token in zip(self.drafts, news, strict=False):
            if draft != token:
                break
            self.num_computed += 1
        self.drafts = ()
        self.chain.append(news)


def following(chunk: ScheduledChunk, draft: int) -> ScheduledChunk:
    """Return the chunk that runs the draft which `chunk` sampled."""
    assert chunk.sample is not None, "only a chunk that sampled has a draft"
    position = chunk.first_position + len(chunk.token_ids)
    return chunk._replace(
        token_ids=(draft,),
        first_position=position,
        write_from=position,
        sample=chunk.sample.after((draft,)),
    )
