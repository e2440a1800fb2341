"""`Replay`: recorded traffic, scaled to the machine.

A session's requests follow one another as recorded: the next is sent when the last has been answered, and not
before its time. Prompts are those of the trace, with its own earlier answers in them, whatever this server
answered. Everything is tokenized before the clock starts and sent as token ids, so what the cache should hit
is known.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ratoon.errors import InvalidParameterError, UsageError
from ratoon.lab.bench import Bench
from ratoon.lab.experiments.settings import setting
from ratoon.lab.experiments.workload import Workload, run_workload
from ratoon.lab.load import Turn, session_of
from ratoon.lab.target import ServerSetup, Target
from ratoon.lab.token_source import TokenSource
from ratoon.lab.traces import HashedPrompt, TraceRequest, read_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The settings. `trace_digest` pins the file: a run is resumed and compared on the same one."""

    trace: str
    trace_digest: str = ""
    num_prompts: int = setting(100, "most requests to replay, from the trace's start")
    length_scale: float = setting(
        1 / 32, "factor on the lengths in a trace of hash ids; texts are as long as they are", kind=float
    )
    time_scale: float = setting(
        1.0, "factor on the times between requests: 2 is half as fast, 0 all at once", kind=float
    )
    max_concurrency: int | None = setting(None, "most sessions under way (default: no limit)")
    max_total_tokens: int | None = setting(
        None, "size of the server's KV pool in tokens (default: the server's)"
    )
    seed: int = setting(0, "of prompts made up for hash ids")

    def __post_init__(self) -> None:
        if self.length_scale <= 0 or self.time_scale < 0:
            raise InvalidParameterError("A length scale is above zero, a time scale not below.")

    def measure(self, bench: Bench) -> None:
        """Replay the trace unless it is done.

        Raises `UsageError` where it cannot be read or is another file.
        """
        path = Path(self.trace)
        requests = read_trace(path, self.num_prompts)
        if file_digest(path) != self.trace_digest:
            raise InvalidParameterError(f"{path} is not the file that this run began with.")
        setup = ServerSetup(pool_tokens=self.max_total_tokens)
        run_workload(
            bench,
            self.names()[0],
            setup,
            self.seed,
            lambda target, source: self._workload(bench, target, source, requests),
        )

    def names(self) -> list[str]:
        """Return the name of the one workload."""
        return [Path(self.trace).stem]

    def _workload(
        self, bench: Bench, target: Target, source: TokenSource, requests: list[TraceRequest]
    ) -> Workload:
        sessions: dict[str, list[Turn]] = {}
        for number, request in enumerate(requests):
            bench.progress("tokenizing", number, len(requests))
            sessions.setdefault(request.session, []).append(self._turn(number, request, target, source))
        bench.progress("tokenizing", 1, 1)
        return Workload(
            [session_of(*turns) for turns in sessions.values()], self.max_concurrency, len(requests)
        )

    def _turn(self, number: int, request: TraceRequest, target: Target, source: TokenSource) -> Turn:
        if isinstance(request.prompt, HashedPrompt):
            prompt = request.prompt.tokens(source, self.length_scale)
        else:
            prompt = target.token_ids(request.prompt)
        if isinstance(request.output, int):
            max_tokens = round(request.output * self.length_scale)
        else:
            max_tokens = len(target.token_ids(request.output))
        at_s = (request.at_s or 0.0) * self.time_scale
        return Turn(f"request {number}", tuple(prompt), max(1, max_tokens), at_s)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, shortened. Raises `UsageError` where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
