"""`Courier`: deltas from the engine's thread to the event loop.

However many deltas a step brings, the loop is woken once.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ratoon.sched.delta import RequestDelta

Receiver = Callable[[RequestDelta], None]


class Courier:
    """Made on the event loop that the receivers are called on."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._parcels: deque[tuple[Receiver, RequestDelta]] = deque()
        self._is_called = False

    def listener(self, receiver: Receiver) -> Callable[[RequestDelta], None]:
        """Return what the engine may call from its thread so that `receiver` is called on the loop."""

        def listen(delta: RequestDelta) -> None:
            self._parcels.append((receiver, delta))
            if not self._is_called:
                self._is_called = True
                self.loop.call_soon_threadsafe(self._deliver)

        return listen

    def _deliver(self) -> None:
        self._is_called = False  # first, so that what comes from now on calls again
        while self._parcels:
            receiver, delta = self._parcels.popleft()
            receiver(delta)
