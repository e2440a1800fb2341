"""A `ratoon serve` process of its own for a measurement, and what can be seen of it from outside.

The scripts beside this file hand options they do not know on to the server: `--threads 1`.
"""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class ServerProcess:
    """A running server. `lines` grows with what it logs."""

    process: "subprocess.Popen[str]"
    port: int
    lines: list[str] = field(default_factory=list)

    def rss_bytes(self) -> int:
        """Return the memory of its own that it holds now: without the model's file, which others may share.

        Pages of the file's token table come in one by one, as tokens are seen for the first time.
        """
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


@contextmanager
def serving(model: str, *arguments: str) -> Iterator[ServerProcess]:
    """Start a server on a free loopback port and yield it when it listens with its model loaded."""
    command = [sys.executable, "-m", "ratoon", "serve", model, "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    started: list[str] = []
    try:
        for line in process.stderr:
            started.append(line)
            if match := re.match(r"listening .*:(\d+)\n", line):
                break
        else:
            raise SystemExit("the server did not start:\n" + "".join(started))
        server = ServerProcess(process, int(match[1]), started)
        threading.Thread(target=lambda: server.lines.extend(process.stderr or ()), daemon=True).start()
        yield server
    finally:
        process.kill()
        process.wait()
