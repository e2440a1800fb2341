"""`AsyncEngine`: an engine on a thread of its own, for callers on other threads and event loops.

Everything that touches the core is a job in one queue, run between two steps; the thread sleeps while there is neither
a job nor a request. What a step changed goes to the listener of its request, on the engine's thread. When the engine
is closed, or breaks on a bug of ours, every listener gets a last delta and later calls raise `EngineError`.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

from ratoon.cache.manager import ResetReport
from ratoon.engine.core import EngineCore
from ratoon.errors import EngineError
from ratoon.request.finish import FinishReason
from ratoon.request.request import Request
from ratoon.sched.delta import RequestDelta

T = TypeVar("T")
Listener = Callable[[RequestDelta], None]


class AsyncEngine:
    """Owns the core from now on; all methods may be called from any thread. Close it, or use it as a context."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._listeners: dict[int, Listener] = {}
        self._lock = threading.Lock()
        self._is_open = True
        self._thread = threading.Thread(target=self._run, name="ratoon-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request, listener: Listener) -> None:
        """Queue a request; `listener` is called on the engine's thread with each delta, and must not wait.

        Raises a `RequestError` if the request could never be served. A listener that raises is not called again and
        its request is cancelled.
        """
        self._core.check(request)
        with self._lock:
            self._check_open()
            assert request.id not in self._listeners, "ids are unique"
            self._listeners[request.id] = listener
            self._jobs.put(lambda: self._core.add(request))

    def cancel(self, request_id: int) -> None:
        """End a request before the next step; its listener gets the last delta. Does nothing if it has ended."""
        with self._lock:
            if self._is_open and request_id in self._listeners:
                self._jobs.put(lambda: self._cancel(request_id))

    def call(self, function: Callable[[EngineCore], T]) -> Future[T]:
        """Run a function on the core between two steps."""
        future: Future[T] = Future()
        ...
