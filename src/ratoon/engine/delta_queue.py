"""`DeltaQueue`: deltas from the engine's thread to a reader on another thread.

A reader that wakes up takes a core from the kernels, which all wait for that one. So it is woken only for
what it has to see at once: the end of a request, and every delta of requests that are `urgent`.
"""

from collections.abc import Collection
from queue import SimpleQueue

from ratoon.sched.delta import RequestDelta


class DeltaQueue:
    """`put` is for the engine's thread, `take` for the reader's."""

    def __init__(self, urgent: Collection[int]) -> None:
        self._urgent = urgent
        self._held: list[RequestDelta] = []
        self._bundles: SimpleQueue[list[RequestDelta]] = SimpleQueue()

    def put(self, delta: RequestDelta) -> None:
        """Keep a delta, and hand all that were kept to the reader if it has to see this one."""
        self._held.append(delta)
        if delta.finish_reason is not None or delta.request_id in self._urgent:
            self._bundles.put(self._held)
            self._held = []

    def take(self) -> list[RequestDelta]:
        """Wait for the next deltas and return them in order."""
        return self._bundles.get()
