"""`RunningChoices`: the choices of one HTTP request in the engine, from submission to the last block freed.

`DeltaDispatcher` brings their deltas from the engine's thread to the event loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Self

from ratoon.engine.async_engine import AsyncEngine
from ratoon.engine.output import OutputDelta
from ratoon.sched.delta import RequestDelta
from ratoon.server.generation.choices import Choice
from ratoon.server.generation.usage import RequestUsage
from ratoon.server.metrics import Metrics

Receiver = Callable[[RequestDelta], None]


class DeltaDispatcher:
    """Made on the event loop that the receivers are called on.

    However many deltas a step brings, the loop is woken once.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._queued: deque[tuple[Receiver, RequestDelta]] = deque()
        self._is_scheduled = False

    def listener(self, receiver: Receiver) -> Callable[[RequestDelta], None]:
        """Return what the engine may call from its thread so that `receiver` is called on the loop."""

        def listen(delta: RequestDelta) -> None:
            self._queued.append((receiver, delta))
            if not self._is_scheduled:
                self._is_scheduled = True
                self.loop.call_soon_threadsafe(self._deliver)

        return listen

    def _deliver(self) -> None:
        self._is_scheduled = False  # first, so that a delta that comes from now on schedules again
        while self._queued:
            receiver, delta = self._queued.popleft()
            receiver(delta)


class RunningChoices:
    """A context: entering submits; leaving cancels what still runs, and waits until the engine has ended it.

    Entering raises a `RequestError` where one of them can never be served; then none of them runs. When
    tokens come is told to the metrics and the usage.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        dispatcher: DeltaDispatcher,
        choices: Sequence[Choice],
        metrics: Metrics,
        usage: RequestUsage,
    ) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._choices = {choice.request.id: choice for choice in choices}
        self._metrics = metrics
        self._usage = usage
        self._arrived: list[RequestDelta] = []
        self._something_arrived = asyncio.Event()
        self.were_submitted = False

    async def __aenter__(self) -> Self:
        requests = [choice.request for choice in self._choices.values()]
        self._engine.submit_all(requests, self._dispatcher.listener(self._receive))
        self.were_submitted = True
        for choice in self._choices.values():
            choice.is_in_engine = True
        return self

    async def __aexit__(self, *_: object) -> None:
        for request_id, choice in self._choices.items():
            if choice.is_in_engine and not choice.has_ended:
                self._engine.cancel(request_id)
        await self.ended_by_engine()

    async def outputs(self) -> AsyncIterator[list[OutputDelta]]:
        """Yield what each step adds, in order, until every text has ended. Raises `EngineError`."""
        while not all(choice.has_ended for choice in self._choices.values()):
            await self._something_arrived.wait()
            self._something_arrived.clear()
            deltas, self._arrived = self._arrived, []
            outputs = []
            for delta in deltas:
                choice = self._choices[delta.request_id]
                if not choice.has_ended:
                    outputs.append(choice.take(delta))
                    if choice.has_ended and choice.is_in_engine:
                        self._engine.cancel(delta.request_id)
            if outputs:
                yield outputs

    async def ended_by_engine(self) -> None:
        """Wait until the engine has ended every request, at most until its next step."""
        while any(choice.is_in_engine for choice in self._choices.values()):
            self._something_arrived.clear()
            await self._something_arrived.wait()

    def _receive(self, delta: RequestDelta) -> None:
        choice = self._choices[delta.request_id]
        choice.note(delta)
        if delta.token_ids:
            self._note_tokens(choice, len(delta.token_ids))
        self._arrived.append(delta)
        self._something_arrived.set()

    def _note_tokens(self, choice: Choice, count: int) -> None:
        now = time.perf_counter()
        if self._usage.first_token_s is None:
            self._usage.first_token_s = now
        if choice.last_token_s is not None:
            for _ in range(count):
                self._metrics.observe_itl((now - choice.last_token_s) / count)
        choice.last_token_s = now
