"""Running a command in this process."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ratoon.cli.main import main

SMALL = "--kv-cache-bytes=64MiB"


@dataclass(frozen=True)
class Ran:
    """Exit status, and what was printed."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `ratoon` with these arguments and, if given, this stdin."""

    def run_it(*argv: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = main(argv)
        shown = capsys.readouterr()
        return Ran(status, shown.out, shown.err)

    return run_it


@pytest.fixture
def model(smollm2_path: Path) -> str:
    """Return the model as an argument."""
    return str(smollm2_path)
