"""A server on a fake model: real HTTP, engine thread, scheduler and cache, over a runner made of integers.

The fake KV of a position is a number made from the number before it and the token, read through the block
tables, and the next token is made from the last number. So an answer is right only if every block it was
built on was.
"""

import asyncio
import hashlib
import http.client
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.engine.adapters import AdapterStore, PreparedAdapter
from ratoon.engine.async_engine import AsyncEngine
from ratoon.engine.core import EngineCore
from ratoon.errors import InvalidParameterError
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.limits import Limits
from ratoon.sched.scheduler import Scheduler
from ratoon.server.limits import ServerLimits, TenantLimits
from ratoon.server.salts import SaltDeriver
from ratoon.server.serve import Server, address_of, bind
from ratoon.server.served_model import ServedModel
from ratoon.server.service import Service
from ratoon.server.settings import ServerSettings
from ratoon.server.tenants import KeyRing, single_tenant
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.step import ChunkResult, Logprobs, ScheduledChunk, StepPlan, StepResult
from ratoon.text.chat_template import ChatTemplate
from ratoon.text.tokenizer import Tokenizer

END = 256
"""The end-of-sequence token; the tokens below it are bytes."""

ADAPTER_BYTES = 1000
"""What every adapter takes, of twice that many for all of them."""

VOCAB_SIZE = 257
BLOCK_SIZE = 4
HIDDEN_SIZE = 3
ROOT = hashlib.sha256(b"a fake model").digest()
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ note }}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def mix(*values: object) -> int:
    """Return a number that depends on all the values."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=8).digest())


class FakeRunner:
    """Executes plans at once, or as many as are allowed; raises instead while `num_failures` is above 0."""

    def __init__(self) -> None:
        self.kv: dict[tuple[int, int], int] = {}
        self.num_failures = 0
        self.num_begun = 0
        self._allowed: int | None = None
        self._changed = threading.Condition()

    def hold(self) -> None:
        """Let every step wait from now on."""
        self.allow(None, 0)

    def allow(self, *counts: int | None) -> None:
        """Let one step after the other pass: `allow(3)` three more than now, `allow(None)` all."""
        with self._changed:
            for count in counts:
                self._allowed = None if count is None else (self._allowed or 0) + count
            self._changed.notify_all()

    def wait_for_steps(self, count: int) -> None:
        """Return when so many steps have begun since the start."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_begun >= count, timeout=30)

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the chunks one after the other, so that a later one may build on an earlier one."""
        with self._changed:
            self.num_begun += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._allowed != 0, timeout=30), (
                "a test left a step waiting"
            )
            if self._allowed is not None:
                self._allowed -= 1
        if self.num_failures:
            self.num_failures -= 1
            raise RuntimeError("the fake runner was told to fail")
        return StepResult(plan.step_id, tuple(self._compute(chunk) for chunk in plan.chunks))

    def _compute(self, chunk: ScheduledChunk) -> ChunkResult:
        (table,) = chunk.block_tables
        state = 0 if chunk.adapter is None else int.from_bytes(chunk.adapter[:8])
        if chunk.first_position > 0:
            state = self.kv[
                table[(chunk.first_position - 1) // BLOCK_SIZE], (chunk.first_position - 1) % BLOCK_SIZE
            ]
        prompt_logprobs: list[Logprobs | None] = []
        inputs: list[object] = list(chunk.token_ids)
        for rows in chunk.input_rows:
            size = len(rows.data) // rows.num_rows
            for i in range(rows.num_rows):
                inputs[rows.offset + i] = (rows.dtype, rows.data[i * size : (i + 1) * size])
        for place, token in enumerate(inputs):
            position = chunk.first_position + place
            state = mix(state, token)
            if position >= chunk.write_from:
                self.kv[table[position // BLOCK_SIZE], position % BLOCK_SIZE] = state
            if chunk.prompt_logprobs is not None and place < len(chunk.prompt_targets):
                target = chunk.prompt_targets[place]
                prompt_logprobs.append(
                    None if target is None else _logprobs(state, chunk.prompt_logprobs, target)
                )
        if chunk.sample is None:
            return ChunkResult(chunk.request_id, prompt_logprobs=tuple(prompt_logprobs))
        params = chunk.sample.params
        choice = (
            state if params.temperature == 0 else mix(state, chunk.sample.seed, chunk.sample.num_generated)
        )
        token = END if choice % 41 == 0 and END not in chunk.sample.banned_token_ids else 32 + choice % 95
        if params.logit_bias:
            token = max(params.logit_bias, key=lambda token_id: params.logit_bias[token_id])
        logprobs = () if params.logprobs is None else (_logprobs(state, params.logprobs, token),)
        return ChunkResult(chunk.request_id, (token,), 0, logprobs, tuple(prompt_logprobs))


def _logprobs(state: int, num_best: int, token: int) -> Logprobs:
    best = [((state + i) % 256, -1.0 - i) for i in range(num_best)]
    return tuple(best) if token in dict(best) else (*best, (token, -50.0))


def make_tokenizer() -> Tokenizer:
    """Return a tokenizer whose tokens are bytes."""
    to_character = {value: key for key, value in _byte_characters().items()}
    whole = tokenizers.Tokenizer(models.BPE(vocab={to_character[b]: b for b in range(256)}, merges=[]))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    whole.decoder = decoders.ByteLevel()
    whole.add_special_tokens([AddedToken("<|end|>", special=True)])
    return Tokenizer(whole.to_str(), ends=(END,))


def _byte_characters() -> dict[str, int]:
    """Return GPT-2's alphabet: what each byte is written as."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}


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
    """A request that somebody else waits for."""

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
    service: Service
    server: Server
    log: io.StringIO
    thread: threading.Thread = field(init=False)
    draining: threading.Event = field(default_factory=threading.Event)

    @property
    def core(self) -> EngineCore:
        """The engine itself."""
        assert self.service._model is not None
        return self.service._model.core

    @property
    def engine(self) -> AsyncEngine:
        """The engine's thread."""
        assert self.service._model is not None
        return self.service._model.engine

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
        loop = self.service.courier.loop
        for _ in range(100_000):
            if condition():
                return
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(timeout=30)
        raise AssertionError("it never came true")

    def let_deadlines_pass(self) -> None:
        """Make the time of every request run out."""

        async def reschedule() -> None:
            for deadline in self.service._deadlines:
                deadline.reschedule(asyncio.get_running_loop().time())

        asyncio.run_coroutine_threadsafe(reschedule(), self.service.courier.loop).result(timeout=30)

    def wait_for_requests(self, count: int) -> None:
        """Return when the engine has been given so many requests that have not ended."""
        self.wait_for(lambda: len(self.engine._listeners) == count)

    def wait_for_jobs(self, count: int = 1) -> None:
        """Return when the engine has been given so many things to do before its next step."""
        self.wait_for(lambda: self.engine._jobs.qsize() >= count)

    def wait_for_drain(self) -> None:
        """Return when the server has begun to stop; it answers nothing new any more, so this asks nothing."""
        assert self.draining.wait(timeout=30)

    def wait_until_idle(self) -> None:
        """Return when no request is left in the server, nor in the engine."""
        self.wait_for(lambda: not self.service.gate.num_in_flight)
        self.wait_for_requests(0)
        self.metrics()  # comes after whatever the engine was given before

    def check_blocks(self) -> None:
        """Check that the cache is sound and that nobody holds a block."""
        self.wait_until_idle()
        cache = self.core.scheduler.cache
        check_invariants(cache)
        assert cache.num_free_blocks == cache.num_usable_blocks


ServerMaker = Callable[..., FakeServer]


def _start(
    stack: ExitStack,
    *,
    keys: KeyRing | None = None,
    num_blocks: int = 200,
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
    runner, tokenizer, log = FakeRunner(), make_tokenizer(), io.StringIO()
    cache = CacheManager([CacheGroupSpec()], num_blocks=num_blocks, block_size=BLOCK_SIZE)
    step = Limits(
        max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, max_model_len=max_model_len
    )
    core = EngineCore(Scheduler(cache, step, eos_token_ids=[END]), runner)

    def load() -> ServedModel:
        if before_load is not None:
            before_load()
        if load_model is not None:
            return load_model()
        return ServedModel(
            name="fake",
            root=ROOT,
            max_model_len=max_model_len,
            hidden_size=HIDDEN_SIZE,
            core=core,
            engine=AsyncEngine(core),
            tokenizer=tokenizer,
            adapters=AdapterStore(lambda folder: PreparedAdapter(ADAPTER_BYTES, object), 2 * ADAPTER_BYTES),
            load_chat_template=lambda: ChatTemplate(template),
            make_chain=_make_chain,
            check_params=_check_params,
        )

    loaded = threading.Event()
    listener = bind("127.0.0.1", 0)
    tenant_limits = tenant_limits or TenantLimits()
    options = ServerSettings(tenant_limits=tenant_limits, limits=limits or ServerLimits(), **settings)
    keys = keys or single_tenant(SaltDeriver(b"s" * 32), tenant_limits, admin_key="root")

    class ObservedService(Service):
        def drain(self) -> None:
            super().drain()
            fake.draining.set()

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


def _make_chain(token_ids: Any, extra_keys: ExtraKeys) -> HashChain:
    chain = HashChain(ROOT, BLOCK_SIZE, extra_keys, token_ids)
    if max(chain.tokens, default=0) >= VOCAB_SIZE:
        raise InvalidParameterError("A token id is outside the fake vocabulary.")
    return chain


def _check_params(params: SamplingParams) -> None:
    if max((*params.logit_bias, *params.stop_token_ids), default=0) >= VOCAB_SIZE:
        raise InvalidParameterError("A token id is outside the fake vocabulary.")


@pytest.fixture
def start_server() -> Iterator[ServerMaker]:
    """Return what starts a server with settings of its own; it is stopped after the test."""
    with ExitStack() as stack:
        yield lambda **options: _start(stack, **options)


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """Return a server that the tests of a module share; after each module nobody may hold a block of it."""
    with ExitStack() as stack:
        fake = _start(stack)
        yield fake
        fake.check_blocks()
