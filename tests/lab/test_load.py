import threading

import numpy as np
import pytest

from ratoon.lab.answer import Answer
from ratoon.lab.load import Session, Turn, poisson_offsets, run_sessions, session_of


def turn(label: str) -> Turn:
    return Turn(label, (1, 2, 3), 1)


def test_all_at_once_is_an_infinite_rate() -> None:
    assert poisson_offsets(3, float("inf"), seed=0) == [0, 0, 0]


def test_poisson_arrivals_have_exponential_gaps_of_the_given_mean() -> None:
    offsets = poisson_offsets(4_000, 5.0, seed=0)
    gaps = np.diff(offsets)

    assert offsets[0] == 0
    assert offsets == sorted(offsets)
    assert np.mean(gaps) == pytest.approx(0.2, rel=0.05)
    assert np.std(gaps) == pytest.approx(0.2, rel=0.1)  # as large as the mean: exponential
    assert offsets == poisson_offsets(4_000, 5.0, seed=0)


def test_every_request_is_answered_once() -> None:
    sessions = [session_of(turn(f"{index}")) for index in range(20)]
    answered: list[str] = []

    run_sessions(sessions, 3, lambda _: Answer(0.0), lambda done, _: answered.append(done.label))

    assert sorted(answered, key=int) == [str(index) for index in range(20)]


def test_a_later_turn_is_sent_the_answer_to_the_one_before() -> None:
    seen = []

    def conversation() -> Session:
        answer = yield turn("first")
        seen.append(answer.output_ids)
        answer = yield turn("second")
        seen.append(answer.output_ids)

    replies = iter([Answer(0.0, output_ids=(7,)), Answer(0.0, output_ids=(8,))])
    run_sessions([conversation()], None, lambda _: next(replies), lambda _, __: None)

    assert seen == [(7,), (8,)]


def test_a_session_ends_with_its_failed_request() -> None:
    answered = []
    run_sessions(
        [session_of(turn("first"), turn("second"))],
        None,
        lambda _: Answer(0.0, error="gone"),
        lambda done, _: answered.append(done.label),
    )

    assert answered == ["first"]


def test_no_more_requests_are_under_way_than_allowed() -> None:
    lock, now, most = threading.Lock(), 0, 0
    full = threading.Barrier(2)  # passed only by two requests under way at once

    def send(_: Turn) -> Answer:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        full.wait(10)
        with lock:
            now -= 1
        return Answer(0.0)

    run_sessions([session_of(turn(f"{i}")) for i in range(10)], 2, send, lambda _, __: None)

    assert most == 2


def test_a_turn_waits_for_its_time_and_an_interrupt_ends_the_wait() -> None:
    def stop(_: Turn, __: Answer) -> None:
        raise KeyboardInterrupt

    sent: list[str] = []

    def send(sending: Turn) -> Answer:
        sent.append(sending.label)
        return Answer(0.0)

    with pytest.raises(KeyboardInterrupt):
        run_sessions([session_of(turn("first"), Turn("never", (1,), 1, 1e9))], 1, send, stop)
    assert sent == ["first"]


def test_an_error_in_a_session_reaches_the_caller() -> None:
    def broken() -> Session:
        yield turn("first")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_sessions([broken()], None, lambda _: Answer(0.0), lambda _, __: None)
