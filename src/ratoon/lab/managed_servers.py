"""`ManagedServers`: starts `ratoon serve` for a setup, waits until it is ready, and stops it.

The server is a process of its own on a free loopback port: it shares nothing with the client but the machine.
What it prints goes to `server-N.log` in the run's folder. Its cache is empty when it starts.
"""

import hashlib
import json
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ratoon.errors import LabError
from ratoon.lab.client import Client
from ratoon.lab.target import ServerSetup, Target

START_S = 120.0
"""Longest wait for a server to be ready."""

STOP_S = 30.0
"""Longest wait for a server to end after SIGTERM, before it is killed."""

POLL_S = 0.05

RATOON = (sys.executable, "-m", "ratoon")
"""The command that `serve` and `inspect` are given to."""


class ManagedServers:
    """Servers of this Ratoon, one at a time, each fresh."""

    def __init__(
        self,
        model: str,
        folder: Path,
        *,
        block_size: int = 16,
        options: Sequence[str] = (),
        command: Sequence[str] = RATOON,
    ) -> None:
        self._model = model
        self._folder = folder
        self._block_size = block_size
        self._options = tuple(options)
        self._command = tuple(command)
        self._inspected: dict[str, Any] | None = None

    @contextmanager
    def start(self, setup: ServerSetup) -> Iterator[Target]:
        """Start a server for the setup.

        Raises `LabError` with the end of its log where it does not get ready.
        """
        keys = (secrets.token_hex(16), secrets.token_hex(16)) if setup.tenants else None
        port, log = _free_port(), self._next_log()
        with TemporaryDirectory() as private:
            arguments = self._arguments(setup, keys, Path(private))
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [*self._command, "serve", self._model, "--port", str(port), *arguments],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is ours; the server is stopped when we are done with it
                )
            try:
                client = Client(f"http://127.0.0.1:{port}", api_key=keys[0] if keys else None)
                _wait_until_ready(process, client, log)
                yield self._target(client, setup, keys)
            finally:
                _stop(process)

    def _target(self, client: Client, setup: ServerSetup, keys: tuple[str, str] | None) -> Target:
        target = Target.probe(client, block_size=self._block_size, tenant_keys=keys)
        if setup.pool_tokens and target.pool_tokens and target.pool_tokens < setup.pool_tokens:
            raise LabError(
                f"The server's pool holds {target.pool_tokens} tokens; {setup.pool_tokens} are needed.",
                hint="Leave the pool's size and data type to the experiment, not to --serve-args.",
            )
        return target

    def describe(self) -> dict[str, str]:
        """Return model, digest and how servers are started, as `ratoon inspect` tells them."""
        return {
            "model": self._model,
            "model digest": self._inspect()["weights_digest"],
            "server": " ".join(["ratoon serve, started for each setup", *self._options]),
            "ops": self._inspect()["ops"],
            "block size": str(self._block_size),
        }

    def _arguments(self, setup: ServerSetup, keys: tuple[str, str] | None, private: Path) -> list[str]:
        # What is still running when we are done is of no interest: after an interrupt nobody wants to wait.
        arguments = ["--drain-timeout", "1", "--block-size", str(self._block_size), *self._options]
        if not setup.caching:
            arguments.append("--no-enable-prefix-caching")
        if setup.pool_tokens is not None:
            num_blocks = -(-setup.pool_tokens // self._block_size) + 1  # and the null block
            arguments += ["--kv-cache-bytes", str(num_blocks * self._inspect()["bytes_per_block"])]
        if keys is not None:
            path = private / "tenants.toml"
            path.write_text("".join(_key_entry(name, key) for name, key in zip("ab", keys, strict=True)))
            arguments += ["--api-keys", str(path), "--secret-file", str(private / "secret")]
        return arguments

    def _next_log(self) -> Path:
        number = 1 + len(list(self._folder.glob("server-*.log")))
        return self._folder / f"server-{number}.log"

    def _inspect(self) -> dict[str, Any]:
        if self._inspected is None:
            options = ["--json", "--block-size", str(self._block_size)]
            command = [*self._command, "inspect", self._model, *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise LabError(f"The model could not be inspected: {_last_line(done.stderr)}")
            self._inspected = json.loads(done.stdout)
        return self._inspected


def _key_entry(name: str, key: str) -> str:
    return f'[tenants.{name}]\nkeys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]\n'


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: "subprocess.Popen[bytes]", client: Client, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        if process.poll() is not None:
            raise LabError(
                f"The server ended with status {process.returncode} before it was ready: "
                f"{_last_line(log.read_text(errors='replace'))}"
            )
        try:
            client.text("/ready")
            return
        except LabError as error:
            if time.monotonic() > deadline:
                raise LabError(
                    f"The server was not ready after {START_S:.0f} s.", hint=f"See {log}."
                ) from error
        time.sleep(POLL_S)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing."
