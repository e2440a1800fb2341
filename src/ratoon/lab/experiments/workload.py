"""Running one workload on a server of its own, with every sample kept as it comes.

An interrupted workload cannot be continued: its load pattern is gone. On resuming it is run again from its
start as a new attempt; the samples of the old one stay in the file and are not analysed.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from ratoon.errors import LabError
from ratoon.lab.answer import Answer
from ratoon.lab.bench import Bench, warm_up
from ratoon.lab.load import Session, Turn, run_sessions
from ratoon.lab.target import ServerSetup, Target
from ratoon.lab.token_source import TokenSource


@dataclass(frozen=True, slots=True)
class Workload:
    """Sessions, how many run at once (None: all), and how many requests they are in all."""

    sessions: Sequence[Session]
    max_concurrency: int | None
    num_requests: int


def run_workload(
    bench: Bench,
    name: str,
    setup: ServerSetup,
    seed: int,
    make: Callable[[Target, TokenSource], Workload],
) -> None:
    """Run it unless it is done. What cannot be run is noted as failed."""
    if bench.store.done(name):
        return
    attempt = 1 + max(
        (row["attempt"] for row in bench.store.rows if row["cell"]["workload"] == name), default=-1
    )
    try:
        with bench.servers.start(setup) as target:
            source = TokenSource(seed, target.vocabulary)
            warm_up(target, source)
            _measure(bench, target, name, attempt, make(target, source))
    except LabError as error:
        bench.fail(error, key=name, cell={"workload": name}, role="end", attempt=attempt)


def _measure(bench: Bench, target: Target, name: str, attempt: int, workload: Workload) -> None:
    answered = 0

    def keep(turn: Turn, answer: Answer) -> None:
        nonlocal answered
        answered += 1
        bench.progress(name, answered, workload.num_requests)
        bench.store.append(
            {
                "key": f"{name}/{turn.label}",
                "cell": {"workload": name},
                "role": "request",
                "attempt": attempt,
                "prompt": turn.prompt,
                "answer": answer.to_json(),
                "error": answer.error,
            }
        )

    before = target.counters()
    run_sessions(
        workload.sessions,
        workload.max_concurrency,
        lambda turn: target.client.complete(turn.prompt, turn.max_tokens),
        keep,
    )
    after = target.counters()
    counted = asdict(after.since(before)) if before is not None and after is not None else None
    bench.store.append(
        {
            "key": name,
            "cell": {"workload": name},
            "role": "end",
            "attempt": attempt,
            "block_size": target.block_size,
            "whole_prompt": target.whole_prompt,
            "counted": counted,
            "error": None,
        }
    )
