"""`Answers`: the strands of one HTTP request in the engine, from submission to the last block given back."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Self

from ratoon.engine.async_engine import AsyncEngine
from ratoon.sched.delta import RequestDelta
from ratoon.server.account import Account
from ratoon.server.answer_format import Part
from ratoon.server.courier import Courier
from ratoon.server.metrics import Metrics
from ratoon.server.strands import Strand


class Answers:
    """A context: entering submits, leaving cancels what still runs and waits until the engine let go of it.

    Entering raises a `RequestError` where one of them can never be served; then none of them runs. When
    tokens come is told to the metrics and the account.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        courier: Courier,
        strands: Sequence[Strand],
        metrics: Metrics,
        account: Account,
    ) -> None:
        self._engine = engine
        self._courier = courier
        self._strands = {strand.request.id: strand for strand in strands}
        self._metrics = metrics
        self._account = account
        self._arrived: list[RequestDelta] = []
        self._something_arrived = asyncio.Event()
        self.were_submitted = False

    async def __aenter__(self) -> Self:
        requests = [strand.request for strand in self._strands.values()]
        self._engine.submit_all(requests, self._courier.listener(self._receive))
        self.were_submitted = True
        for strand in self._strands.values():
            strand.is_in_engine = True
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._are_complete():
            for request_id in self._strands:
                self._engine.cancel(request_id)
            await self.settled()

    async def parts(self) -> AsyncIterator[list[tuple[int, Part]]]:
        """Yield what each step adds to which answer, until every text has ended. Raises `EngineError`."""
        while not self._are_complete():
            await self._something_arrived.wait()
            self._something_arrived.clear()
            deltas, self._arrived = self._arrived, []
            parts = []
            for delta in deltas:
                strand = self._strands[delta.request_id]
                if strand.finish_reason is None:
                    parts.append((strand.index, strand.take(delta)))
                    if strand.finish_reason is not None and strand.is_in_engine:
                        self._engine.cancel(delta.request_id)
            yield parts

    async def settled(self) -> None:
        """Wait until the engine has ended every request, at most until its next step."""
        while any(strand.is_in_engine for strand in self._strands.values()):
            self._something_arrived.clear()
            await self._something_arrived.wait()

    def _are_complete(self) -> bool:
        return all(strand.finish_reason is not None for strand in self._strands.values())

    def _receive(self, delta: RequestDelta) -> None:
        strand = self._strands[delta.request_id]
        if delta.token_ids:
            self._note_tokens(strand, len(delta.token_ids))
        if delta.finish_reason is not None:
            strand.is_in_engine = False
        self._arrived.append(delta)
        self._something_arrived.set()

    def _note_tokens(self, strand: Strand, count: int) -> None:
        now = time.perf_counter()
        if self._account.first_token_s is None:
            self._account.first_token_s = now
        if strand.last_token_s is not None:
            for _ in range(count):
                self._metrics.observe_itl((now - strand.last_token_s) / count)
        strand.last_token_s = now
