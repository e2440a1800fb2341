"""`Scheduler`: who runs in the next step, and what becomes of a request after it.

Running requests stand in order of rank, and `plan` walks them from the front. When blocks run out, the last
one is preempted: the latest, least important request, and one that is not in the plan yet, so that nothing
planned can depend on what it loses. If that is the request which asks, it keeps what it holds and waits for
the next step. The first request can thus take whatever it needs, and always moves.
"""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType

from ratoon.cache.manager import CacheManager
from ratoon.errors import EmptyPromptError, EngineError, GrammarError, PromptTooLongError, RatoonError
from ratoon.request.finish import FinishReason, Timings
from ratoon.request.request import Request, RequestStatus
from ratoon.sched.delta import RequestDelta
from ratoon.sched.kv_allocator import KVAllocator
from ratoon.sched.limits import Limits
from ratoon.sched.observer import RequestObserver
from ratoon.sched.queue import WaitingQueue
from ratoon.sched.stopping import append_output, stop_ids, token_limit
from ratoon.step import ChunkResult, ScheduledChunk, StepPlan, StepResult

_rank = attrgetter("rank")

Drafts = Mapping[int, Sequence[int]]
"""By request id, what might follow the known tokens."""

NO_DRAFTS: Drafts = MappingProxyType({})


class Scheduler:
    """Knows every request from arrival to end. Used from one thread; `now` is the engine's clock in seconds.

    Each plan must be followed by `apply` or `fail` before anything else is called. `cache` holds the blocks.
    """

    def __init__(
        self,
        cache: CacheManager,
        limits: Limits,
        *,
        eos_token_ids: Iterable[int] = (),
        observer: RequestObserver | None = None,
    ) -> None:
        self._limits = limits
        self._eos_token_ids = frozenset(eos_token_ids)
        self._observer = observer
        self.cache = cache
        self._allocator = KVAllocator(cache, limits.max_num_batched_tokens, observer)
        self._requests: dict[int, Request] = {}
        self._waiting = WaitingQueue()
        self._running: list[Request] = []
        self._ended: list[int] = []  # since the last plan
        self._num_arrivals = 0
        self._num_plans = 0
        self._num_preemptions = 0

    @property
    def num_waiting(self) -> int:
        """Requests that hold no blocks: new or preempted."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_preemptions(self) -> int:
        """How often a request lost its blocks to another one, since the start."""
        return self._num_preemptions

    @property
    def num_uncommitted_tokens(self) -> int:
        """Tokens that running requests have computed and that no other request can find (yet)."""
        return sum(map(self._allocator.num_uncommitted, self._running))

    @property
    def decoding(self) -> list[Request]:
        """Running requests with one known token to go, for which drafts could be verified next."""
        return [request for request in self._running if request.num_known - request.num_computed == 1]

    def check(self, request: Request) -> None:
        """Raise a `RequestError` if the request could never be served; may be called from any thread."""
        num_prompt, max_model_len = request.num_prompt_tokens, self._limits.max_model_len
        if num_prompt == 0:
            raise EmptyPromptError("The prompt has no tokens.")
        if num_prompt >= max_model_len:
            raise PromptTooLongError(
                f"The prompt has {num_prompt} tokens; the context holds {max_model_len}, answer included.",
                hint="Shorten the prompt, or allow for more with max_model_len and kv_cache_bytes.",
            )
        self._allocator.check_fits(token_limit(request, max_model_len) - 1)

    def add(self, request: Request, now: float) -> None:
        """Queue a request; raises as `check` does."""
        assert request.id not in self._requests, "ids are unique"
        self.check(request)
        request.stop_ids = stop_ids(request, self._eos_token_ids)
        request.token_limit = token_limit(request, self._limits.max_model_len)
        request.arrival = self._num_arrivals
        request.arrival_s = now
        self._num_arrivals += 1
        self._requests[request.id] = request
        self._waiting.push(request)
        if self._observer is not None:
            self._observer.arrived(request)

    def cancel(self, request_id: int, now: float) -> RequestDelta | None:
        """End a request now, wherever it stands; None if there is none of that id, or no longer."""
        request = self._requests.get(request_id)
        return self._finish(request, FinishReason.CANCELLED, now) if request else None

    def plan(self, now: float, drafts: Drafts = NO_DRAFTS) -> StepPlan:
        """Choose the chunks of the next step and take their blocks. Without chunks there is nothing to do.

        Drafts go along as far as they might be needed and the budget has room: every running request's own
        tokens come first, prompts that wait come last.
        """
        chunks: list[ScheduledChunk] = []
        budget = self._limits.max_num_batched_tokens
        running = self._running
        has_room = True
        while budget and len(chunks) < len(running):
            request = running[len(chunks)]
            guesses = drafts.get(request.id, ())
            if guesses:
                room = budget - (len(running) - len(chunks))  # a token for this request and each after it
                guesses = guesses[: max(0, min(room, request.max_drafts))]
            chunk = self._allocator.extend(request, budget, tuple(guesses))
            if chunk is not None:
                chunks.append(chunk)
                budget -= len(chunk.token_ids)
                continue
            has_room = False
            if len(chunks) + 1 == len(running):
                break  # the last one keeps what it has and tries again in the next step
            self._preempt(running[-1])
        while budget and has_room and len(self._waiting) and len(running) < self._limits.max_num_seqs:
            chunk = self._allocator.admit(self._waiting.head(), budget, alone=not running)
            if chunk is None:
                break
            chunks.append(chunk)
            budget -= len(chunk.token_ids)
            self._start(self._waiting.head(), now)
        assert chunks or not self._requests, "at least one request always moves"
        if not chunks:
            return StepPlan(self._num_plans, ())
        self._num_plans += 1
        ended, self._ended = tuple(self._ended), []
        return StepPlan(self._num_plans, tuple(chunks), ended)

    def apply(self, plan: StepPlan, result: StepResult, now: float) -> tuple[RequestDelta, ...]:
        """Move every request of a plan that was computed; return what changed for their readers."""
        assert result.step_id == plan.step_id, "a plan is applied with its own result"
        deltas = [
            self._advance(chunk, found, now) for chunk, found in zip(plan.chunks, result.chunks, strict=True)
        ]
        return tuple(filter(None, deltas))

    def fail(self, plan: StepPlan, error: BaseException, now: float) -> tuple[RequestDelta, ...]:
        """End the requests of a plan whose computation raised; nothing of that step is ever found again."""
        self._allocator.abandon()
        failure = error if isinstance(error, EngineError) else EngineError(f"A step failed: {error!r}.")
        failure.__cause__ = None if failure is error else error
        failed = [self._requests[chunk.request_id] for chunk in plan.chunks]
        return tuple(self._finish(request, FinishReason.FAILED, now, error=failure) for request in failed)

    def _start(self, request: Request, now: float) -> None:
        self._waiting.remove(request)
        insort(self._running, request, key=_rank)
        request.status = RequestStatus.RUNNING
        if request.first_scheduled_s is None:
            request.first_scheduled_s = now

    def _preempt(self, request: Request) -> None:
        self._running.remove(request)
        self._allocator.release(request)
        self._waiting.push(request)
        request.status = RequestStatus.WAITING
        request.prompt_logprobs.clear()
        self._num_preemptions += 1

    def _advance(self, chunk: ScheduledChunk, found: ChunkResult, now: float) -> RequestDelta | None:
        request = self._requests[chunk.request_id]
        token_ids, reason = append_output(request, found.token_ids)
        end = chunk.first_position + len(chunk.token_ids)
        if chunk.num_drafts:
            request.num_drafts += chunk.num_drafts - found.num_cut_drafts
            request.num_accepted_drafts += min(found.num_accepted_drafts, len(token_ids))
            end = min(end - chunk.num_drafts + found.num_accepted_drafts, request.num_known)
        self._allocator.commit(request, end)
        if chunk.prompt_logprobs is not None:
            request.prompt_logprobs += found.prompt_logprobs
        if found.error is not None:
            return self._finish(request, FinishReason.FAILED, now, error=GrammarError(found.error))
        request.num_forced += min(found.num_forced, len(token_ids))
        if not token_ids:
            return None
        delta = RequestDelta(request.id, token_ids, found.logprobs[: len(token_ids)])
        if request.first_token_s is None:
            request.first_token_s = now
            delta = delta._replace(usage=request.usage)
            if request.params.prompt_logprobs is not None:
                delta = delta._replace(prompt_logprobs=(None, *request.prompt_logprobs))
        return delta if reason is None else self._finish(request, reason, now, delta=delta)

    def _finish(
        self,
        request: Request,
        reason: FinishReason,
        now: float,
        *,
        delta: RequestDelta | None = None,
        error: RatoonError | None = None,
    ) -> RequestDelta:
        """Forget a request and give back what it holds; return `delta`, or an empty one, as its last."""
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
            self._allocator.release(request)
        else:
            self._waiting.remove(request)
        del self._requests[request.id]
        self._ended.append(request.id)
        request.status = RequestStatus.FINISHED
        request.adapter = None
        if self._observer is not None:
            self._observer.ended(request)
        timings = Timings(request.arrival_s, now, request.first_scheduled_s, request.first_token_s)
        return (delta or RequestDelta(request.id))._replace(
            finish_reason=reason,
            usage=request.usage,
            timings=timings,
            error=error,
        )
