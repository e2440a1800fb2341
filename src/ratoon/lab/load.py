"""Load: when requests are sent, and the threads that send them.

The unit is a session: requests that follow one another, like the turns of a conversation. A single request is
a session of one. A turn is not sent before its time (open loop: all at once, Poisson, or a trace's times),
and a session does not begin before one of `max_concurrency` places is free (closed loop).
"""

import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from ratoon.lab.answer import Answer


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session."""

    label: str
    prompt: tuple[int, ...]
    max_tokens: int
    at_s: float = 0.0
    """Not sent before this, since the load began."""


Session = Generator[Turn, Answer, None]
"""Yields turns and is sent the answer to each; so a turn can continue what the server said before."""

Send = Callable[[Turn], Answer]
"""Sends one turn and waits for its answer."""


def session_of(*turns: Turn) -> Session:
    """Return a session of known turns."""
    for turn in turns:  # noqa: UP028  # `yield from` would pass the answers on to the tuple
        yield turn


def poisson_offsets(count: int, request_rate: float, seed: int) -> list[float]:
    """Return start times in seconds: exponential gaps, `request_rate` a second on average; inf: all at 0."""
    if request_rate == float("inf"):
        return [0.0] * count
    gaps = np.random.default_rng(seed).exponential(1 / request_rate, size=count)
    return [float(offset) for offset in np.cumsum(gaps) - gaps[0]]


def run_sessions(
    sessions: Sequence[Session],
    max_concurrency: int | None,
    send: Send,
    answered: Callable[[Turn, Answer], None],
) -> None:
    """Run all sessions to their end; `answered` is called in this thread, in the order in which answers came.

    A session whose request fails ends there: its next turn would build on an answer that never came. An error
    in a sender, or an interrupt, ends the wait at once; requests under way are left to their daemon threads.
    """
    results: queue.SimpleQueue[tuple[Turn, Answer] | Exception | None] = queue.SimpleQueue()
    stop = threading.Event()
    waiting = queue.SimpleQueue[Session]()
    for session in sessions:
        waiting.put(session)
    start = time.perf_counter()

    def work() -> None:
        try:
            while not stop.is_set():
                run(waiting.get_nowait())
        except queue.Empty:
            results.put(None)
        except Exception as error:
            results.put(error)

    def run(session: Session) -> None:
        turn = next(session, None)
        while turn is not None:
            if stop.wait(max(0.0, start + turn.at_s - time.perf_counter())):
                return
            answer = send(turn)
            results.put((turn, answer))
            if answer.error is not None:
                return
            try:
                turn = session.send(answer)
            except StopIteration:
                return

    workers = min(max_concurrency or len(sessions), len(sessions))
    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()
    try:
        while workers:
            result = results.get()
            if result is None:
                workers -= 1
            elif isinstance(result, Exception):
                raise result
            else:
                answered(*result)
    finally:
        stop.set()
