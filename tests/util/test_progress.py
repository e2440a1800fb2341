"""Bars are drawn on terminals only."""

import io
from contextlib import redirect_stderr

import pytest

from ratoon.util.progress import TerminalProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress() as progress:
        progress("loading", 1, 2)
    assert capsys.readouterr().err == ""


def test_it_may_be_switched_off() -> None:
    with redirect_stderr(Terminal()) as terminal, TerminalProgress(enabled=False) as progress:
        progress("loading", 1, 2)
    assert terminal.getvalue() == ""


def test_stages_follow_each_other() -> None:
    with redirect_stderr(Terminal()) as terminal, TerminalProgress(delay_s=0) as progress:
        for stage in ("opening", "loading"):
            for done in range(3):
                progress(stage, done, 2)
    assert "opening" in terminal.getvalue()
    assert "loading" in terminal.getvalue()


def test_leaving_early_leaves_no_bar_behind() -> None:
    with redirect_stderr(Terminal()) as terminal, TerminalProgress(delay_s=0) as progress:
        progress("loading", 1, 2)
    assert terminal.getvalue().endswith(" \r")


def test_quick_work_shows_no_bar() -> None:
    with redirect_stderr(Terminal()) as terminal, TerminalProgress(delay_s=1000) as progress:
        progress("loading", 1, 2)
    assert terminal.getvalue() == ""
