"""`AsyncEngine`: an engine on a thread of its own, for callers on other threads.

Everything that touches the core is a job in one queue, done between two steps; the thread sleeps while
there is neither a job nor a request. What a step changed goes to the listener of its request, on the engine's
thread.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from ratoon.engine.core import EngineCore
from ratoon.engine.cores import CoreClaim
from ratoon.errors import EngineError
from ratoon.request.finish import FinishReason
from ratoon.request.request import Request
from ratoon.sched.delta import RequestDelta

_log = logging.getLogger(__name__)

T = TypeVar("T")
Job = tuple[Callable[[EngineCore], Any], Future[Any]]
Listener = Callable[[RequestDelta], object]


class AsyncEngine:
    """Owns the core from now on; its methods may be called from any thread. Close it, or use it as a context.

    `cores` are claimed for the threads that the runner computes with, of which this engine's is the first.

    Should a bug break the engine, every listener gets a last delta with an error (and nothing else),
    and what is asked of it later raises `EngineError`, as after `close`.
    """

    def __init__(self, core: EngineCore, *, cores: CoreClaim | None = None) -> None:
        self._core = core
        self._listeners: dict[int, Listener] = {}
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # None is the last
        self._lock = threading.Lock()
        self._is_open = True
        self._cores = cores
        self._thread = threading.Thread(target=self._run, name="ratoon-engine", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[EngineCore], T]) -> Future[T]:
        """Run a function on the core before the next step."""
        future: Future[T] = Future()
        with self._lock:
            if not self._is_open:
                raise EngineError("The engine is closed.")
            self._jobs.put((function, future))
        return future

    def submit_all(self, requests: Sequence[Request], listener: Listener) -> None:
        """Queue requests of one reader together, so that a step finds all of them.

        `listener` is called on the engine's thread with each delta, and must not block. If it raises, its
        reader is taken to be gone and the request is cancelled. Raises a `RequestError`, with nothing
        queued, if one of the requests could never be served.
        """
        for request in requests:
            self._core.check(request)
            assert request.id not in self._listeners, "ids are unique"
        self._listeners |= {request.id: listener for request in requests}

        def add_all(core: EngineCore) -> None:
            for request in requests:
                try:
                    core.add(request)
                except Exception as error:
                    _log.exception("Request %d could not be queued.", request.id)
                    self._deliver([_failure(request.id, f"The request could not be queued: {error!r}.")])

        try:
            self.call(add_all)
        except EngineError:
            for request in requests:
                self._listeners.pop(request.id, None)
            raise

    def cancel(self, request_id: int) -> None:
        """End a request before the next step, if it has not ended; its listener gets the last delta."""
        with suppress(EngineError):
            self.call(lambda core: self._deliver(filter(None, [core.cancel(request_id)])))

    @property
    def num_running(self) -> int:
        """Requests that ran in the last step and have not ended."""
        step = self._core.last_step
        return 0 if step is None else step.num_running

    @property
    def num_paused_draft_steps(self) -> int:
        """Steps to go without drafts, after guessing failed, until it is tried again."""
        return self._core.draft_stats.num_paused_steps

    @property
    def num_failed_in_a_row(self) -> int:
        """How many steps have failed since the last one that succeeded."""
        return self._core.totals.num_failed_in_a_row

    def close(self) -> None:
        """Finish the step that runs, cancel what is left, and end the thread. Closing twice does nothing."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._jobs.put(None)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        if self._cores is not None:
            self._cores.keep_first_thread()
        try:
            while self._do_jobs():
                self._deliver(self._core.step())
            self._deliver(filter(None, map(self._core.cancel, list(self._listeners))))
        except BaseException:
            _log.exception("The engine broke and has stopped.")
            self._break_off()

    def _do_jobs(self) -> bool:
        """Do what was queued, and wait for more while there is nothing to compute; False at the last job."""
        while not self._core.has_work or not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                return False
            function, future = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(self._core))
                except Exception as error:
                    future.set_exception(error)
                except BaseException as error:
                    future.set_exception(error)
                    raise
        return True

    def _deliver(self, deltas: Iterable[RequestDelta]) -> None:
        for delta in deltas:
            listener = self._listeners.get(delta.request_id)
            if listener is None:
                continue
            if delta.finish_reason is not None:
                del self._listeners[delta.request_id]
            try:
                listener(delta)
            except Exception:
                _log.warning("The reader of request %d is gone.", delta.request_id, exc_info=True)
                self._listeners.pop(delta.request_id, None)
                self._core.cancel(delta.request_id)

    def _break_off(self) -> None:
        """End every wait for this engine with an error: queued jobs first, then listeners."""
        message = "The engine broke and has stopped."
        with self._lock:
            self._is_open = False
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None and job[1].set_running_or_notify_cancel():
                job[1].set_exception(EngineError(message))
        for request_id, listener in list(self._listeners.items()):
            with suppress(Exception):
                listener(_failure(request_id, message))


def _failure(request_id: int, message: str) -> RequestDelta:
    return RequestDelta(request_id, finish_reason=FinishReason.FAILED, error=EngineError(message))
