"""Builders for the lab's tests: servers that are no more than a cache, and answers with known times."""

import hashlib
import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ratoon.lab.answer import Answer
from ratoon.lab.bench import Bench
from ratoon.lab.client import Client
from ratoon.lab.managed_servers import ManagedServers
from ratoon.lab.run_store import RunStore
from ratoon.lab.target import ServerSetup, Target
from ratoon.util.progress import no_progress

FAKE = Path(__file__).with_name("fake_ratoon.py")


class FakeServers:
    """Fake servers in this process: as `ManagedServers`, at no cost."""

    def __init__(self, folder: Path, options: tuple[str, ...]) -> None:
        self._fake = runpy.run_path(str(FAKE))
        self._folder = folder
        self._options = options

    @contextmanager
    def start(self, setup: ServerSetup) -> Iterator[Target]:
        """Start one in a thread."""
        arguments = ["serve", "fake", *self._options]
        if not setup.caching:
            arguments.append("--no-enable-prefix-caching")
        if setup.pool_tokens is not None:
            num_blocks = 1 + -(-setup.pool_tokens // 16)
            arguments += ["--kv-cache-bytes", str(num_blocks * self._fake["BYTES_PER_BLOCK"])]
        if setup.tenants:
            digests = [hashlib.sha256(key.encode()).hexdigest() for key in "ab"]
            entries = [
                f'[tenants.{name}]\nkeys = ["sha256:{digest}"]\n'
                for name, digest in zip("ab", digests, strict=True)
            ]
            path = self._folder / "tenants.toml"
            path.write_text("".join(entries))
            arguments += ["--api-keys", str(path)]
        server = self._fake["make_server"](self._fake["parse"](arguments))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            client = Client(f"http://127.0.0.1:{server.server_port}", api_key="a" if setup.tenants else None)
            yield Target.probe(client, block_size=16, tenant_keys=("a", "b") if setup.tenants else None)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def describe(self) -> dict[str, str]:
        """Say what it is."""
        return {"model": "fake", "block size": "16"}


MakeServers = Callable[..., ManagedServers]
MakeBench = Callable[..., Bench]
MakeAnswer = Callable[..., Answer]


@pytest.fixture
def make_servers(tmp_path: Path) -> MakeServers:
    """Return a maker of fake servers, each a process; its arguments are options of `fake_ratoon.py`."""

    def make(*options: str) -> ManagedServers:
        return ManagedServers("fake", tmp_path, options=options, command=(sys.executable, str(FAKE)))

    return make


@pytest.fixture
def make_bench(tmp_path: Path) -> MakeBench:
    """Return a maker of a bench over fake servers, with a run begun in the test's folder."""

    def make(experiment: str, settings: dict[str, object], *options: str) -> Bench:
        manifest: dict[str, object] = {
            "experiment": experiment,
            "command": f"ratoon lab {experiment}",
            "machine": {"processor": "none"},
            "versions": {"python": "3"},
            "settings": settings,
        }
        servers = FakeServers(tmp_path, options)
        manifest["server"] = servers.describe()
        return Bench(servers, RunStore.create(tmp_path / "run", manifest), no_progress)

    return make


@pytest.fixture
def make_answer() -> MakeAnswer:
    """Return a maker of answers: sent at 10 s, first token after `ttft_s`, then one every `gap_s`."""

    def make(
        *,
        ttft_s: float = 0.5,
        gap_s: float = 0.1,
        output: int = 3,
        prompt: int = 100,
        cached: int | None = 0,
        sent_at_s: float = 10.0,
        text_digest: str = "same",
    ) -> Answer:
        arrivals = tuple(ttft_s + gap_s * index for index in range(output))
        return Answer(
            sent_at_s=sent_at_s,
            arrivals_s=arrivals,
            end_s=arrivals[-1],
            prompt_tokens=prompt,
            completion_tokens=output,
            cached_tokens=cached,
            output_ids=tuple(range(output)),
            text_digest=text_digest,
        )

    return make
