"""A server on a fake model: real HTTP, engine thread, scheduler and cache.

Tests steer it from outside: they hold steps, let deadlines pass, and wait until something has happened.
"""

import asyncio
import http.client
import io
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.chat.chat_model import chat_model
from ratoon.engine.adapters import AdapterStore, PreparedAdapter
from ratoon.engine.async_engine import AsyncEngine, Listener
from ratoon.engine.core import EngineCore
from ratoon.engine.request_factory import RequestFactory
from ratoon.errors import GrammarError
from ratoon.explain.recorded_cache import RecordedCache
from ratoon.explain.request_explainer import RequestExplainer
from ratoon.request.request import Request
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.sched.delta import RequestDelta
from ratoon.sched.limits import Limits
from ratoon.sched.scheduler import Scheduler
from ratoon.server.http.limits import ServerLimits, TenantLimits
from ratoon.server.serve import Server, address_of, bind
from ratoon.server.served_model import ServedModel
from ratoon.server.server_settings import ServerSettings
from ratoon.server.service import Service
from ratoon.server.tenants import KeyRing, SaltDeriver, single_tenant
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.text.chat_template import ChatTemplate
from tests.support.fake_model import (
    BLOCK_SIZE,
    END,
    HIDDEN_SIZE,
    ROOT,
    VOCAB_SIZE,
    FakeRunner,
    check_params,
    make_chain,
    make_tokenizer,
)

T = TypeVar("T")

ADAPTER_BYTES = 1000
"""What every adapter takes, of twice that many for all of them."""

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ note }}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def _no_grammars(form: StructuredOutputs) -> None:
    raise GrammarError("The fake model follows no grammar.")


class ObservedEngine(AsyncEngine):
    """Counts the requests that have not ended, and the calls that have not begun."""

    num_requests = 0
    num_calls = 0

    def submit_all(self, requests: Sequence[Request], listener: Listener) -> None:
        """Submit, and count each request until its last delta."""

        def observed(delta: RequestDelta) -> None:
            if delta.finish_reason is not None:
                self.num_requests -= 1
            listener(delta)

        self.num_requests += len(requests)
        try:
            super().submit_all(requests, observed)
        except BaseException:
            self.num_requests -= len(requests)
            raise

    def call(self, function: Callable[[EngineCore], T]) -> Future[T]:
        """Call, and count until the engine's thread comes to it."""

        def observed(core: EngineCore) -> T:
            self.num_calls -= 1
            return function(core)

        self.num_calls += 1
        try:
            return super().call(observed)
        except BaseException:
            self.num_calls -= 1
            raise


class ObservedService(Service):
    """Tells when it begins to drain, and keeps the deadlines of what runs in reach."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.began_to_drain = threading.Event()
        self.deadlines: set[asyncio.Timeout] = set()

    def drain(self) -> None:
        """Drain and tell it."""
        super().drain()
        self.began_to_drain.set()

    @asynccontextmanager
    async def deadline(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Keep the deadline while it holds."""
        async with super().deadline(seconds) as deadline:
            self.deadlines.add(deadline)
            try:
                yield deadline
            finally:
                self.deadlines.discard(deadline)


@dataclass
class Reply:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON."""
        return json.loads(self.body)


class Background:
    """A request that another thread waits for."""

    def __init__(self, request: Callable[[], Reply]) -> None:
        self._replies: list[Reply] = []
        self._thread = threading.Thread(target=lambda: self._replies.append(request()))
        self._thread.start()

    def reply(self) -> Reply:
        """Wait for the response."""
        self._thread.join(timeout=30)
        (reply,) = self._replies
        return reply


@dataclass
class FakeServer:
    """A running server with its fake model. `log` is what it has logged."""

    port: int
    runner: FakeRunner
    service: ObservedService
    server: Server
    log: io.StringIO
    thread: threading.Thread = field(init=False)
    engine: ObservedEngine = field(init=False)

    def request(
        self, method: str, path: str, body: object = None, *, key: str | None = None, raw: bytes | None = None
    ) -> Reply:
        """Make a request and read the whole response."""
        with self.opened(method, path, body, key=key, raw=raw) as response:
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def post(self, path: str, body: object, **options: Any) -> Reply:
        """Post JSON."""
        return self.request("POST", path, body, **options)

    def get(self, path: str, **options: Any) -> Reply:
        """Get."""
        return self.request("GET", path, **options)

    def complete(self, prompt: object, **fields: Any) -> Any:
        """Return the JSON of a completion that must succeed; greedy unless told otherwise."""
        reply = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        assert reply.status == 200, reply.body
        return reply.json

    def events(self, path: str, body: dict[str, Any], **options: Any) -> list[Any]:
        """Return the events of a stream that must succeed and end with [DONE]."""
        reply = self.post(path, {**body, "stream": True}, **options)
        assert reply.status == 200, reply.body
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        *events, done, empty = reply.body.decode().split("\n\n")
        assert (done, empty) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def in_background(self, method: str, path: str, body: object = None, **options: Any) -> "Background":
        """Make a request on a thread of its own."""
        return Background(lambda: self.request(method, path, body, **options))

    @contextmanager
    def sent(self, path: str, body: object) -> Iterator[None]:
        """Post a request without reading the response; the client goes away when the context ends."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        yield
        connection.close()

    @contextmanager
    def opened(
        self, method: str, path: str, body: object = None, *, key: str | None = None, raw: bytes | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """Make a request; the connection is closed when the context ends, whatever was read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = raw if raw is not None or body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        try:
            connection.request(method, path, data, headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """Return the samples of a scrape by their names and labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return when something has come true, looking once per turn of the server's event loop."""
        loop = self.service.dispatcher.loop
        for _ in range(100_000):
            if condition():
                return
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(timeout=30)
        raise AssertionError("it never came true")

    def let_deadlines_pass(self) -> None:
        """Make the time of every request run out."""

        async def reschedule() -> None:
            for deadline in self.service.deadlines:
                deadline.reschedule(asyncio.get_running_loop().time())

        asyncio.run_coroutine_threadsafe(reschedule(), self.service.dispatcher.loop).result(timeout=30)

    def wait_for_requests(self, count: int) -> None:
        """Return when the engine has been given so many requests that have not ended."""
        self.wait_for(lambda: self.engine.num_requests == count)

    def wait_for_jobs(self, count: int = 1) -> None:
        """Return when the engine has been given so many things to do before its next step."""
        self.wait_for(lambda: self.engine.num_calls >= count)

    def wait_for_drain(self) -> None:
        """Return when the server has begun to stop; it answers nothing new any more, so this asks nothing."""
        assert self.service.began_to_drain.wait(timeout=30)

    def wait_until_idle(self) -> None:
        """Return when no request is left in the server; a response waits for the engine to end its own."""
        self.wait_for(lambda: not self.service.admission.num_in_flight)

    def check_blocks(self) -> None:
        """Check that the cache is sound and that no request holds a block."""
        self.wait_until_idle()
        self.service.model.engine.call(_check_blocks).result(timeout=30)


def _check_blocks(core: EngineCore) -> None:
    cache = core.scheduler.cache
    check_invariants(cache)
    assert cache.num_free_blocks == cache.num_usable_blocks


ServerMaker = Callable[..., FakeServer]


def start_fake_server(
    stack: ExitStack,
    *,
    keys: KeyRing | None = None,
    num_blocks: int = 200,
    num_ghosts: int = 0,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 32,
    max_model_len: int = 256,
    template: str = TEMPLATE,
    tenant_limits: TenantLimits | None = None,
    limits: ServerLimits | None = None,
    before_load: Callable[[], None] | None = None,
    load_model: Callable[[], ServedModel] | None = None,
    **settings: Any,
) -> FakeServer:
    """Start a server with settings of its own; the stack stops it."""
    runner, tokenizer, log = FakeRunner(), make_tokenizer(), io.StringIO()
    make_cache = partial(RecordedCache, num_ghosts=num_ghosts) if num_ghosts else CacheManager
    cache = make_cache([CacheGroupSpec()], num_blocks=num_blocks, block_size=BLOCK_SIZE)
    explainer = RequestExplainer(cache) if isinstance(cache, RecordedCache) else None
    step = Limits(
        max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, max_model_len=max_model_len
    )
    core = EngineCore(
        Scheduler(cache, step, eos_token_ids=[END], observer=explainer), runner, explainer=explainer
    )

    def load() -> ServedModel:
        if before_load is not None:
            before_load()
        if load_model is not None:
            return load_model()
        fake.engine = ObservedEngine(core)
        return ServedModel(
            name="fake",
            root=ROOT,
            max_model_len=max_model_len,
            hidden_size=HIDDEN_SIZE,
            vocab_size=VOCAB_SIZE,
            engine=fake.engine,
            tokenizer=tokenizer,
            adapters=AdapterStore(lambda folder: PreparedAdapter(ADAPTER_BYTES, object), 2 * ADAPTER_BYTES),
            chat=lambda: chat_model(ChatTemplate(template), tokenizer),
            requests=RequestFactory(make_chain, check_params),
            check_form=_no_grammars,
            has_grammars=False,
            block_size=BLOCK_SIZE,
        )

    loaded = threading.Event()
    listener = bind("127.0.0.1", 0)
    tenant_limits = tenant_limits or TenantLimits()
    options = ServerSettings(tenant_limits=tenant_limits, limits=limits or ServerLimits(), **settings)
    keys = keys or single_tenant(SaltDeriver(b"s" * 32), tenant_limits, admin_key="root")

    service = ObservedService(load, keys, options, name="fake", log=log, on_load=loaded.set)
    server = Server(service)
    fake = FakeServer(int(address_of(listener).rsplit(":", 1)[1]), runner, service, server, log)
    fake.thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    fake.thread.start()
    stack.callback(_stop, fake)
    if before_load is None:
        assert loaded.wait(timeout=30), "the fake model loads at once"
    return fake


def _stop(fake: FakeServer) -> None:
    fake.runner.allow(None)
    fake.server.should_exit = True
    fake.thread.join(timeout=30)
    assert not fake.thread.is_alive(), "the server stops when it is told to"
