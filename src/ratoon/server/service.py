"""`Service`: what all endpoints share: the model once it is loaded, the keys, admission, metrics and log."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TextIO, TypeVar

from ratoon.engine.adapters import LoadedAdapter
from ratoon.engine.core import EngineCore
from ratoon.errors import EngineError, UnknownAdapterError
from ratoon.server.generation.running_choices import DeltaDispatcher
from ratoon.server.http.errors import ApiError
from ratoon.server.http.limits import AdmissionControl
from ratoon.server.metrics import Metrics
from ratoon.server.request_log import RequestLog, RequestRecord
from ratoon.server.served_model import ServedModel
from ratoon.server.server_settings import ServerSettings
from ratoon.server.snapshot import EngineSnapshot, take_snapshot
from ratoon.server.tenants import KeyRing

MAX_FAILED_STEPS = 3
"""So many failed steps in a row, and the server is not ready any more."""

T = TypeVar("T")


class Service:
    """Lives on one event loop, from `start` to `stop`.

    `load` runs on a thread of its own and returns the model, or raises; `on_load` is then called on the
    loop, and `load_error` says what went wrong.
    """

    def __init__(
        self,
        load: Callable[[], ServedModel],
        keys: KeyRing,
        settings: ServerSettings,
        *,
        name: str,
        log: TextIO,
        on_load: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.keys = keys
        self.name = name
        self.admission = AdmissionControl(settings.limits, num_running=self._num_running)
        self.metrics = Metrics(vllm_model=name if settings.metrics_compat == "vllm" else None)
        self.load_error: Exception | None = None
        self.is_draining = False
        self._load = load
        self._on_load = on_load
        self._request_log = RequestLog(log, as_json=settings.log_json)
        self._deadlines: set[asyncio.Timeout] = set()
        self._model: ServedModel | None = None

    async def start(self) -> None:
        """Begin to load the model; the server can answer meanwhile."""
        self.dispatcher = DeltaDispatcher()
        self._loading = asyncio.create_task(self._load_model())

    async def stop(self) -> None:
        """Stop the engine. The requests must have ended."""
        await asyncio.wait((self._loading,))
        if self._model is not None:
            await asyncio.to_thread(self._model.engine.close)

    def drain(self) -> None:
        """Take nothing new, and give what runs `drain_timeout_s` at most."""
        self.is_draining = True
        latest = asyncio.get_running_loop().time() + self.settings.drain_timeout_s
        for deadline in self._deadlines:
            deadline.reschedule(min(latest, deadline.when() or latest))

    @property
    def model(self) -> ServedModel:
        """The model. Raises `ApiError` 503 where requests cannot be served now."""
        if self.is_draining:
            raise ApiError(503, "The server is stopping.", code="not_ready")
        if self._model is None:
            raise ApiError(
                503, "The model is still being loaded.", code="not_ready", headers={"Retry-After": "1"}
            )
        return self._model

    def adapter_named(self, name: str | None) -> LoadedAdapter | None:
        """Return the adapter that a client's `model` field names, None for the model itself.

        Raises `ApiError` 404 for a name that stands for neither.
        """
        if name is None or name == self.name:
            return None
        try:
            return self.model.adapters.get(name)
        except UnknownAdapterError as error:
            names = ", ".join(map(repr, (self.name, *self.model.adapters.by_name)))
            raise ApiError(
                404, f"There is no model {name!r}; there is {names}.", code="model_not_found", param="model"
            ) from error

    def check_ready(self) -> None:
        """Raise `ApiError` 503 unless requests are served and the last steps did not all fail."""
        try:
            self.model.engine.call(lambda core: None)
        except EngineError as error:
            raise ApiError(503, error.message, code="not_ready") from error
        num_failed = self.model.engine.num_failed_in_a_row
        if num_failed >= MAX_FAILED_STEPS:
            raise ApiError(503, f"The last {num_failed} steps failed.", code="not_ready")

    @asynccontextmanager
    async def deadline(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Raise `ApiError` 504 where the block takes longer, or longer than a stopping server waits."""
        try:
            async with asyncio.timeout(seconds) as deadline:
                self._deadlines.add(deadline)
                try:
                    yield deadline
                finally:
                    self._deadlines.discard(deadline)
        except TimeoutError as error:
            reason = (
                "The server is stopping."
                if self.is_draining
                else f"The request took longer than {seconds:g} s."
            )
            raise ApiError(504, reason, code="deadline_exceeded") from error

    async def ask_engine(self, question: Callable[[EngineCore], T]) -> T:
        """Run a function on the core between two steps."""
        return await asyncio.wrap_future(self.model.engine.call(question))

    async def snapshot(self) -> EngineSnapshot | None:
        """Return the engine's counters; None where there is no engine."""
        if self._model is None:
            return None
        try:
            return await asyncio.wrap_future(self._model.engine.call(take_snapshot))
        except EngineError:
            return None

    def note_finished(self, record: RequestRecord) -> None:
        """Log and count a finished request."""
        self.admission.note_finished(record.e2e_s)
        self.metrics.observe_request(record)
        self._request_log.write(record)

    def _num_running(self) -> int:
        return 0 if self._model is None else self._model.engine.num_running

    async def _load_model(self) -> None:
        try:
            self._model = await asyncio.to_thread(self._load)
        except Exception as error:  # whatever it is, the server cannot serve without a model
            self.load_error = error
        self._on_load()
