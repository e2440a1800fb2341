"""`PeerProcess`: a peer in a process of its own, loaded and waiting for work."""

import json
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from peers import HERE, PeerSpec, python_of
from work import Call, TokenTimes

START_LIMIT_S = 300
"""For the start, and for each of the calls that warm up: some peers compile then."""


class PeerError(Exception):
    """A peer that cannot be started, or its own words about work that it could not do."""


class TooSlowError(Exception):
    """Work that took longer than was allowed. The process is gone."""


class PeerProcess:
    """Starting one takes as long as the peer takes until it can compute: `start_s`.

    Raises `PeerError` where it does not start. `peak_memory_bytes` is its largest resident set so far.
    """

    def __init__(self, spec: PeerSpec, model: Path, root: Path, threads: int) -> None:
        python = python_of(spec.environment, root)
        if not python.exists():
            raise PeerError(f"not installed; run: python bench/peers/run.py setup {spec.environment}")
        command = [str(python), str(HERE / "worker.py"), spec.worker, str(model), "--threads", str(threads)]
        begun = time.perf_counter()
        root.mkdir(parents=True, exist_ok=True)
        with (root / f"{spec.name.replace(' ', '-')}.log").open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        ready = self._answer(START_LIMIT_S)
        self.start_s = time.perf_counter() - begun
        self.description: str = ready["ready"]["description"]
        self.peak_memory_bytes = 0

    def run(self, call: Call, limit_s: float) -> TokenTimes:
        """Return the times of the tokens. Raises `PeerError` or `TooSlowError`."""
        request = json.dumps({"prompts": call.prompts, "max_tokens": call.max_tokens})
        with suppress(BrokenPipeError):  # it has ended; the answer that does not come says so
            print(request, file=self._input, flush=True)
        answer = self._answer(limit_s)
        if "error" in answer:
            raise PeerError(answer["error"])
        self.peak_memory_bytes = answer["peak_memory_bytes"]
        times: TokenTimes = answer["token_times_s"]
        if [len(t) for t in times] != [call.max_tokens] * len(call.prompts):
            raise PeerError(f"gave {[len(t) for t in times]} tokens instead of {call.max_tokens} each")
        return times

    @property
    def is_alive(self) -> bool:
        """Whether it can be given work."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process; it may have ended before."""
        with suppress(BrokenPipeError):
            self._input.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def _input(self) -> IO[str]:
        return cast(IO[str], self._process.stdin)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        output = cast(IO[str], self._process.stdout)
        if not select.select([output], [], [], limit_s)[0]:
            self._kill()
            raise TooSlowError
        line = output.readline()
        if not line:
            raise PeerError(f"ended with status {self._process.wait()}; see its log")
        return cast(dict[str, Any], json.loads(line))
