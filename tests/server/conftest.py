"""Servers on a fake model, and one on a real one."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ratoon.engine.config import EngineConfig
from ratoon.server.served_model import load_served_model
from tests.support.fake_server import FakeServer, ServerMaker, start_fake_server


@pytest.fixture
def start_server() -> Iterator[ServerMaker]:
    """Return what starts a server with settings of its own; it is stopped after the test."""
    with ExitStack() as stack:
        yield lambda **options: start_fake_server(stack, **options)


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """Return a server that a module's tests share; after the module no request may hold a block of it."""
    with ExitStack() as stack:
        fake = start_fake_server(stack)
        yield fake
        fake.check_blocks()


@pytest.fixture(scope="session")
def real_server(smollm2_path: Path) -> Iterator[FakeServer]:
    """Return a server with SmolLM2; after all tests no request may hold a block of it."""
    config = EngineConfig(kv_cache_bytes=64 << 20)
    with ExitStack() as stack:
        server = start_fake_server(
            stack, load_model=lambda: load_served_model(str(smollm2_path), "fake", config, {})
        )
        yield server
        server.check_blocks()
