import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from queue import SimpleQueue
from typing import Any

import pytest

from ratoon.engine.async_engine import AsyncEngine
from ratoon.engine.core import EngineCore
from ratoon.errors import EmptyPromptError, EngineError
from ratoon.request.finish import FinishReason
from ratoon.request.request import Request
from ratoon.sched.delta import RequestDelta

PROMPT = [1 + i % 13 for i in range(20)]
PATIENCE_S = 30.0
ENDLESS = 100_000


@pytest.fixture
def bench(make_bench: Callable[..., Any]) -> Any:
    """An engine for the tests to run; of the bench itself they use only the parts."""
    return make_bench(num_blocks=1 + 30_000, max_model_len=110_000)


@pytest.fixture
def engine(bench: Any) -> Iterator[AsyncEngine]:
    with AsyncEngine(bench.core) as engine:
        yield engine


@pytest.fixture
def make_request(bench: Any) -> Callable[..., Request]:
    """Make requests with ids of their own."""
    made: list[Request] = []

    def make(prompt: list[int] = PROMPT, **settings: Any) -> Request:
        request: Request = bench.request(prompt, **settings)
        request.id = len(made)
        made.append(request)
        return request

    return make


def tokens(deltas: list[RequestDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


def is_idle(engine: AsyncEngine) -> bool:
    return not engine.call(lambda core: core.has_work).result(PATIENCE_S)


def test_a_thread_reads_a_request_to_its_end(
    engine: AsyncEngine, make_request: Callable[..., Request], make_bench: Callable[..., Any]
) -> None:
    deltas = list(engine.stream(make_request(max_tokens=9)))
    assert tokens(deltas) == make_bench().output_of(PROMPT, max_tokens=9)
    assert deltas[-1].finish_reason is FinishReason.LENGTH


def test_an_event_loop_reads_many_requests_side_by_side(
    engine: AsyncEngine, make_request: Callable[..., Request], make_bench: Callable[..., Any]
) -> None:
    async def read(request: Request) -> list[int]:
        return tokens([delta async for delta in engine.stream_async(request)])

    async def read_all() -> list[list[int]]:
        return await asyncio.gather(*(read(make_request([*PROMPT, i], max_tokens=9)) for i in range(20)))

    expected = [make_bench().output_of([*PROMPT, i], max_tokens=9) for i in range(20)]
    assert asyncio.run(read_all()) == expected


def test_many_threads_may_submit_at_once(
    engine: AsyncEngine, make_request: Callable[..., Request], make_bench: Callable[..., Any]
) -> None:
    requests = [make_request([*PROMPT, i], max_tokens=9) for i in range(16)]
    with ThreadPoolExecutor(8) as threads:
        outputs = list(threads.map(lambda request: tokens(list(engine.stream(request))), requests))
    assert outputs == [make_bench().output_of([*PROMPT, i], max_tokens=9) for i in range(16)]


def test_requests_submitted_together_run_in_the_same_step(
    engine: AsyncEngine, bench: Any, make_request: Callable[..., Request]
) -> None:
    deltas: SimpleQueue[RequestDelta] = SimpleQueue()
    engine.submit_all([make_request(max_tokens=1) for _ in range(5)], deltas.put)
    assert {deltas.get(timeout=PATIENCE_S).request_id for _ in range(5)} == set(range(5))
    (plan,) = bench.runner.plans
    assert len(plan.chunks) == 5


def test_of_requests_submitted_together_none_runs_if_one_is_refused(
    engine: AsyncEngine, make_request: Callable[..., Request]
) -> None:
    with pytest.raises(EmptyPromptError):
        engine.submit_all([make_request(), make_request([])], print)
    assert is_idle(engine)


def test_a_request_that_can_never_be_served_is_refused_at_once(
    engine: AsyncEngine, make_request: Callable[..., Request]
) -> None:
    with pytest.raises(EmptyPromptError):
        engine.submit(make_request([]), print)
    with pytest.raises(EmptyPromptError):
        next(engine.stream(make_request([])))


def test_dropping_a_stream_cancels_its_request(
    engine: AsyncEngine, bench: Any, make_request: Callable[..., Request]
) -> None:
    stream = engine.stream(make_request(max_tokens=ENDLESS))
    next(stream)
    stream.close()
    assert is_idle(engine)
    assert bench.cache.num_free_blocks == bench.cache.usable_blocks


def test_a_task_that_is_cancelled_cancels_its_request(
    engine: AsyncEngine, make_request: Callable[..., Request]
) -> None:
    async def scenario() -> None:
        begun = asyncio.Event()

        async def read() -> None:
            async with aclosing(engine.stream_async(make_request(max_tokens=ENDLESS))) as stream:
                async for _ in stream:
                    begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert is_idle(engine)


def test_a_cancelled_request_ends_with_a_last_delta(
    engine: AsyncEngine, make_request: Callable[..., Request]
) -> None:
    request = make_request(max_tokens=ENDLESS)
    stream = engine.stream(request)
    next(stream)
    engine.cancel(request.id)
    *_, last = stream
    assert last.finish_reason is FinishReason.CANCELLED
    assert last.usage is not None
    engine.cancel(request.id)  # it has ended: nothing happens
    assert is_idle(engine)


def test_a_listener_that_raises_loses_its_request_and_nobody_elses(
    engine: AsyncEngine, make_request: Callable[..., Request]
) -> None:
    def broken(delta: RequestDelta) -> None:
        raise RuntimeError("the event loop is closed")

    engine.submit(make_request(max_tokens=ENDLESS), broken)
    deltas = list(engine.stream(make_request()))
    assert deltas[-1].finish_reason is FinishReason.LENGTH
    assert is_idle(engine)


def test_after_a_failed_step_the_engine_goes_on(
    engine: AsyncEngine, bench: Any, make_request: Callable[..., Request]
) -> None:
    bench.runner.failure = OSError("the device is gone")
    (delta,) = engine.stream(make_request())
    assert delta.finish_reason is FinishReason.FAILED
    assert list(engine.stream(make_request()))[-1].finish_reason is FinishReason.LENGTH


def test_calls_run_between_steps_and_bring_back_results_and_errors(
    engine: AsyncEngine, make_request: Callable[..., Request]
) -> None:
    list(engine.stream(make_request()))
    report = engine.call(EngineCore.reset_cache).result(PATIENCE_S)
    assert report.num_dropped_blocks == len(PROMPT) // 4
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda core: 1 // 0).result(PATIENCE_S)


def test_closing_cancels_what_is_left_and_ends_the_thread(
    bench: Any, make_request: Callable[..., Request]
) -> None:
    engine = AsyncEngine(bench.core)
    request = make_request(max_tokens=ENDLESS)
    deltas: SimpleQueue[RequestDelta] = SimpleQueue()
    engine.submit(request, deltas.put)
    deltas.get(timeout=PATIENCE_S)
    engine.close()
    engine.close()
    received = [deltas.get() for _ in range(deltas.qsize())]
    assert received[-1].finish_reason is FinishReason.CANCELLED
    assert bench.cache.num_free_blocks == bench.cache.usable_blocks
    assert "ratoon-engine" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(EngineError):
        engine.submit(make_request(), print)
    engine.cancel(request.id)  # it has ended: nothing happens


def test_should_the_engine_break_nobody_is_left_waiting(
    bench: Any, make_request: Callable[..., Request], caplog: pytest.LogCaptureFixture
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def broken_step() -> tuple[RequestDelta, ...]:
        reached.set()
        go_on.wait(PATIENCE_S)
        raise AssertionError("a bug of ours")

    bench.core.step = broken_step
    with AsyncEngine(bench.core) as engine:
        deltas: SimpleQueue[RequestDelta] = SimpleQueue()
        engine.submit(make_request(), deltas.put)
        reached.wait(PATIENCE_S)
        pending = engine.call(lambda core: core.has_work)
        late = make_request()
        engine.submit(late, deltas.put)
        go_on.set()
        for _ in range(2):
            delta = deltas.get(timeout=PATIENCE_S)
            assert delta.finish_reason is FinishReason.FAILED
            assert isinstance(delta.error, EngineError)
        with pytest.raises(EngineError):
            pending.result(PATIENCE_S)
        with pytest.raises(EngineError):
            engine.submit(make_request(), print)
    assert "a bug of ours" in caplog.text
