"""`EngineCore`: the loop. Draft, plan, execute, apply, each done by the part that it is named after."""

import time
from collections.abc import Callable

from ratoon.cache.events import CacheReset
from ratoon.draft.speculation import Speculation
from ratoon.draft.stats import DraftStats
from ratoon.engine.step_stats import StepStats, StepTotals
from ratoon.explain.request_explainer import RequestExplainer
from ratoon.request.request import Request
from ratoon.sched.delta import RequestDelta
from ratoon.sched.scheduler import NO_DRAFTS, Scheduler
from ratoon.step import Runner


class EngineCore:
    """Used from one thread. `clock` gives seconds from any fixed moment; all timings are read from it.

    With a `speculation`, steps verify what it guesses; what is answered does not depend on it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        speculation: Speculation | None = None,
        explainer: RequestExplainer | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.scheduler = scheduler
        self.last_step: StepStats | None = None
        self.totals = StepTotals()
        self.explainer = explainer
        self._runner = runner
        self._speculation = speculation
        self._clock = clock

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return self.scheduler.num_running + self.scheduler.num_waiting > 0

    @property
    def draft_stats(self) -> DraftStats:
        """What became of drafts since the start; all zero without speculation."""
        return DraftStats() if self._speculation is None else self._speculation.stats

    def check(self, request: Request) -> None:
        """Raise a `RequestError` if the request could never be served; may be called from any thread."""
        self.scheduler.check(request)

    def add(self, request: Request) -> None:
        """Queue a request; raises as `check` does."""
        self.scheduler.add(request, self._clock())

    def cancel(self, request_id: int) -> RequestDelta | None:
        """End a request and free its blocks; return its last delta, or None if it had ended before."""
        return self.scheduler.cancel(request_id, self._clock())

    def reset_cache(self) -> CacheReset:
        """Drop every key of the prefix cache; running requests finish on the blocks they hold.

        A draft model's cache is emptied too, and not counted.
        """
        if self._speculation is not None:
            self._speculation.reset_cache()
        return self.scheduler.cache.reset()

    def step(self) -> tuple[RequestDelta, ...]:
        """Compute one step; return what it changed, in the order in which requests ran.

        If the computation raises, the requests of this step end as failed and the engine can go on. What is
        not an `Exception`, such as Ctrl-C, is raised again after that.
        """
        begun = self._clock()
        speculation = self._speculation
        drafts = NO_DRAFTS if speculation is None else speculation.propose(self.scheduler.decoding)
        drafted = self._clock()
        plan = self.scheduler.plan(drafted, drafts)
        if not plan.chunks:
            return ()
        planned = self._clock()
        result = None
        try:
            result = self._runner.execute(plan)
        except BaseException as error:
            executed = self._clock()
            deltas = self.scheduler.fail(plan, error, executed)
            if not isinstance(error, Exception):
                raise
        else:
            executed = self._clock()
            deltas = self.scheduler.apply(plan, result, executed)
            if speculation is not None:
                speculation.learn(plan, deltas, drafted - begun, executed - planned)
        self.last_step = StepStats(
            num_tokens=plan.num_tokens,
            num_scheduled=len(plan.chunks),
            num_running=self.scheduler.num_running,
            num_waiting=self.scheduler.num_waiting,
            draft_s=drafted - begun,
            plan_s=planned - drafted,
            execute_s=executed - planned,
            apply_s=self._clock() - executed,
            shared_reads=result.shared_reads if result else (),
        )
        self.totals.add(self.last_step, failed=result is None)
        return deltas
