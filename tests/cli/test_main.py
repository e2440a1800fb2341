"""The `ratoon` script: help, errors, exit statuses."""

import argparse
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import ratoon
from ratoon.cli import main as main_module
from ratoon.cli.main import COMMANDS, main
from ratoon.errors import PullError, UsageError

SOURCE = Path(ratoon.__file__).parents[1]


def python(*arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def own_interrupt() -> Iterator[None]:
    """Give the test run its Ctrl-C back: `main` ignores it once it is on its way out."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def a_command_that_raises(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, own_interrupt: None
) -> None:
    """Replace every command by one that raises the test's parameter."""

    def run(arguments: argparse.Namespace) -> int:
        raise request.param

    command = SimpleNamespace(add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(main_module, "load_command", lambda name: command)


def test_alone_it_prints_help_with_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"    {name}" in shown for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main([command, "--help"])
    assert raised.value.code == 0
    assert f"usage: ratoon {command}" in capsys.readouterr().out


def test_the_version_is_the_packages_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"ratoon {ratoon.__version__}\n"


@pytest.mark.parametrize("argv", [["dance"], ["--dance"], ["pull", "--dance"], ["generate"], ["cache"]])
def test_misuse_is_one_sentence_and_a_hint(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    error, hint = shown.err.splitlines()
    assert error.startswith("error: ")
    assert error.endswith(".")
    assert hint.startswith("hint: `ratoon ")


@pytest.mark.usefixtures("a_command_that_raises")
@pytest.mark.parametrize(
    ("a_command_that_raises", "status", "shown"),
    [
        (UsageError("Not so.", hint="But so."), 2, "error: Not so.\nhint: But so.\n"),
        (PullError("It broke."), 1, "error: It broke.\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (OSError(28, "No space left on device"), 1, "error: No space left on device.\n"),
        (MemoryError(), 1, "error: There is not enough memory for this.\n"),
        (UsageError("No 'a\nb\x1b'."), 2, "error: No 'a\\nb\\x1b'.\n"),
        (PermissionError(13, "Permission denied", "/x"), 1, "error: Permission denied: /x.\n"),
    ],
    indirect=["a_command_that_raises"],
)
def test_what_goes_wrong_is_told_and_gives_its_exit_status(
    status: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull"]) == status
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize("a_command_that_raises", [KeyboardInterrupt()], indirect=True)
def test_a_second_ctrl_c_does_not_disturb_the_way_out(
    a_command_that_raises: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(io.StringIO):
        def write(self, text: str) -> int:
            signal.raise_signal(signal.SIGINT)
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", Impatient())
    assert main(["pull"]) == 130


def test_a_reader_that_goes_away_is_no_complaint() -> None:
    process = python("-m", "ratoon", "pull")
    assert process.stdout is not None
    process.stdout.close()
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (141, b"")


@pytest.mark.parametrize(
    ("start", "heavy"),
    [
        ("main([])", "numpy gguf tokenizers jinja2 tqdm asyncio"),
        ("load_command('generate')", "gguf huggingface_hub tqdm asyncio"),
    ],
)
def test_nothing_starts_with_heavy_libraries_that_it_may_not_need(start: str, heavy: str) -> None:
    loaded = f"{set(heavy.split())} & set(sys.modules)"
    process = python("-c", f"import sys, ratoon.cli.main as m; m.{start}; sys.exit(bool({loaded}))")
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_streams_that_are_closed_are_empty_and_swallow_all() -> None:
    closed = 'exec <&- >&- 2>&-; exec "$@"'
    reads = ["-m", "ratoon", "cache", "-"]
    for arguments, status in ((reads, 2), (["-m", "ratoon", "pull"], 0)):
        process = subprocess.run(
            ["sh", "-c", closed, "sh", sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
            timeout=60,
            check=False,
        )
        assert process.returncode == status


def test_the_package_runs_as_a_module() -> None:
    process = python("-m", "ratoon", "--version")
    stdout, _ = process.communicate(timeout=60)
    assert stdout.decode().strip() == f"ratoon {ratoon.__version__}"


def test_the_public_names_are_there() -> None:
    assert all(hasattr(ratoon, name) for name in ratoon.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Llm'"):
        _ = ratoon.Llm
