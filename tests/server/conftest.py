"""Servers on a fake model."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

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
