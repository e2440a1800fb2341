import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def stream(engine: AsyncEngine, request: Request) -> Iterator[RequestDelta]:
    """Submit a request and read its deltas."""
    deltas: SimpleQueue[RequestDelta] = SimpleQueue()
    engine.submit_all([request], deltas.put)
    while True:
        yield (delta := deltas.get(timeout=PATIENCE_S))
        if delta.finish_reason is not None:
            return


def is_idle(engine: AsyncEngine) -> bool:
    return not engine.call(lambda core: core.has_work).result(PATIENCE_S)


def test_a_thread_reads_a_request_to_its_end(
    engine: AsyncEngine, make_request: Callable[..., Request], make_bench: Callable[..., Any]
) -> None:
    deltas = list(stream(engine, make_request(max_tokens=9)))
    assert tokens(deltas) == make_bench().output_of(PROMPT, max_tokens=9)
    assert deltas[-1].finish_reason is FinishReason.LENGTH


def test_many_threads_may_submit_at_once(
    engine: AsyncEngine, make_request: Callable[..., Request], make_bench: Callable[..., Any]
) -> None:
    requests = [make_request([*PROMPT, i], max_tokens=9) for i in range(16)]
    with ThreadPoolExecutor(8) as threads:
        outputs = list(threads.map(lambda request: tokens(list(stream(engine, request))), requests))
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


def test_a_cancelled_request_ends_with_a_last_delta_and_frees_its_blocks(
    engine: AsyncEngine, bench: Any, make_request: Callable[..., Request]
) -> None:
    request = make_request(max_tokens=ENDLESS)
    deltas = stream(engine, request)
    next(deltas)
    engine.cancel(request.id)
    *_, last = deltas
    assert last.finish_reason is FinishReason.CANCELLED
    assert last.usage is not None
    engine.cancel(request.id)  # it has ended: nothing happens
    assert is_idle(engine)
    assert bench.cache.num_free_blocks == bench.cache.num_usable_blocks


def test_a_listener_that_raises_loses_its_request_and_nobody_elses(
    engine: AsyncEngine, make_request: Callable[..., Request]
) -> None:
    def broken(delta: RequestDelta) -> None:
        raise RuntimeError("the event loop is closed")

    engine.submit_all([make_request(max_tokens=ENDLESS)], broken)
    deltas = list(stream(engine, make_request()))
    assert deltas[-1].finish_reason is FinishReason.LENGTH
    assert is_idle(engine)


def test_after_a_failed_step_the_engine_goes_on(
    engine: AsyncEngine, bench: Any, make_request: Callable[..., Request]
) -> None:
    bench.runner.failure = OSError("the device is gone")
    (delta,) = stream(engine, make_request())
    assert delta.finish_reason is FinishReason.FAILED
    assert list(stream(engine, make_request()))[-1].finish_reason is FinishReason.LENGTH


def test_calls_run_between_steps_and_bring_back_results_and_errors(
    engine: AsyncEngine, make_request: Callable[..., Request]
) -> None:
    list(stream(engine, make_request()))
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
    engine.submit_all([request], deltas.put)
    deltas.get(timeout=PATIENCE_S)
    engine.close()
    engine.close()
    received = [deltas.get() for _ in range(deltas.qsize())]
    assert received[-1].finish_reason is FinishReason.CANCELLED
    assert bench.cache.num_free_blocks == bench.cache.num_usable_blocks
    assert "ratoon-engine" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(EngineError):
        engine.submit_all([make_request()], print)
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
        engine.submit_all([make_request()], deltas.put)
        reached.wait(PATIENCE_S)
        pending = engine.call(lambda core: core.has_work)
        late = make_request()
        engine.submit_all([late], deltas.put)
        go_on.set()
        for _ in range(2):
            delta = deltas.get(timeout=PATIENCE_S)
            assert delta.finish_reason is FinishReason.FAILED
            assert isinstance(delta.error, EngineError)
        with pytest.raises(EngineError):
            pending.result(PATIENCE_S)
        with pytest.raises(EngineError):
            engine.submit_all([make_request()], print)
    assert "a bug of ours" in caplog.text


def test_a_cancelled_call_is_passed_over_when_the_engine_breaks(
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
        engine.submit_all([make_request()], deltas.put)
        reached.wait(PATIENCE_S)
        cancelled = engine.call(lambda core: core.has_work)
        waiting = engine.call(lambda core: core.has_work)
        assert cancelled.cancel()
        go_on.set()
        assert deltas.get(timeout=PATIENCE_S).finish_reason is FinishReason.FAILED
        with pytest.raises(EngineError):
            waiting.result(PATIENCE_S)
    assert "InvalidStateError" not in caplog.text


def test_a_cancelled_call_is_passed_over_between_steps(engine: AsyncEngine, bench: Any) -> None:
    go_on = threading.Event()
    blocking = engine.call(lambda core: go_on.wait(PATIENCE_S))
    cancelled = engine.call(lambda core: core.has_work)
    assert cancelled.cancel()
    go_on.set()
    assert blocking.result(PATIENCE_S)
    assert is_idle(engine)


def test_a_request_that_cannot_be_queued_ends_with_an_error_and_the_others_run(
    engine: AsyncEngine, bench: Any, make_request: Callable[..., Request]
) -> None:
    broken, fine = make_request(), make_request()
    add = bench.core.add

    def add_all_but_one(request: Request) -> None:
        if request is broken:
            raise ZeroDivisionError("a bug of ours")
        add(request)

    bench.core.add = add_all_but_one
    deltas: SimpleQueue[RequestDelta] = SimpleQueue()
    engine.submit_all([broken, fine], deltas.put)
    first = deltas.get(timeout=PATIENCE_S)
    assert (first.request_id, first.finish_reason) == (broken.id, FinishReason.FAILED)
    assert isinstance(first.error, EngineError)
    ended = None
    while ended is None:
        delta = deltas.get(timeout=PATIENCE_S)
        assert delta.request_id == fine.id
        ended = delta.finish_reason
    assert ended is FinishReason.LENGTH


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_that_ends_the_thread_is_answered(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    def leave(core: EngineCore) -> None:
        raise SystemExit

    engine = AsyncEngine(bench.core)
    with pytest.raises(SystemExit):
        engine.call(leave).result(PATIENCE_S)
    engine.close()
    with pytest.raises(EngineError):
        engine.call(lambda core: core.has_work)
