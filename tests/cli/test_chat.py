"""`ratoon chat` is a prompt loop over one growing conversation."""

import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratoon.cli.chat import read_line
from ratoon.engine.llm import LLM
from ratoon.engine.output import OutputDelta
from ratoon.errors import TextError

FEW = ("--max-tokens=6", "--kv-cache-bytes=64MiB")
Run = Callable[..., Any]


def counts(err: str) -> list[tuple[int, int]]:
    """Prompt tokens and cached ones, of each turn."""
    return [(int(a), int(b)) for a, b in re.findall(r"\[(\d+) prompt tokens, (\d+) of them cached", err)]


def test_each_turn_finds_the_one_before_in_the_cache(run: Run, model: str) -> None:
    ran = run("chat", model, *FEW, stdin=b"What is sugar cane?\n\nAnd where does it grow?\n")
    assert ran.status == 0
    assert len(ran.out.splitlines()) >= 2
    (first, nothing), (second, cached) = counts(ran.err)
    assert nothing == 0
    assert second > first
    assert cached == first // 16 * 16


def test_reset_begins_a_new_conversation_and_exit_leaves(run: Run, model: str) -> None:
    ran = run("chat", model, *FEW, stdin=b"Hi\n/reset\nHi\n/dance\n/exit\nHi\n")
    (first, _), (second, _) = counts(ran.err)
    assert first == second
    assert ran.err.count("/reset begins a new conversation") == 2


def test_a_turn_too_long_is_told_and_the_talk_goes_on(run: Run, model: str) -> None:
    ran = run("chat", model, *FEW, "--max-model-len=64", stdin=b"word " * 100 + b"\nHi\n")
    assert ran.status == 0
    assert "the context holds 64" in ran.err
    assert len(counts(ran.err)) == 1


def test_input_that_is_not_utf8_ends_it_with_an_error(run: Run, model: str) -> None:
    ran = run("chat", model, *FEW, stdin=b"\xff\n")
    assert ran.status == 1
    assert "error: Standard input is not UTF-8" in ran.err


def test_at_a_terminal_too_what_is_not_utf8_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr("builtins.input", lambda prompt: "ü\udcff")
    with pytest.raises(TextError, match="Standard input is not UTF-8: byte 2 is 0xff"):
        read_line()


def test_ctrl_c_stops_an_answer_and_the_talk_goes_on(
    run: Run, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Any]] = []

    def interrupted(
        self: LLM, messages: list[Any], params: object, *, adapter: None
    ) -> Iterator[OutputDelta]:
        asked.append(messages)
        yield OutputDelta(1, 0, "Sugar", [1])
        raise KeyboardInterrupt

    monkeypatch.setattr(LLM, "stream_chat", interrupted)
    ran = run("chat", model, *FEW, stdin=b"one\ntwo\n")
    assert ran.status == 0
    assert ran.out == "Sugar\nSugar\n"
    assert [message["content"] for message in asked[1]] == ["one", "Sugar", "two"]


def test_a_template_from_a_file_is_used_instead_of_the_models_own(
    run: Run, model: str, tmp_path: Path
) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    ran = run("chat", model, *FEW, f"--chat-template={file}", stdin=b"one two three\n")
    assert ran.status == 0
    assert counts(ran.err) == [(3, 0)]


def test_a_template_that_is_not_there_or_no_template_is_an_error(
    run: Run, model: str, tmp_path: Path
) -> None:
    file = tmp_path / "chat.jinja"
    assert "cannot be read: No such file" in run("chat", model, *FEW, f"--chat-template={file}").err
    file.write_bytes(b"\xff")
    assert f"{file} is not UTF-8" in run("chat", model, *FEW, f"--chat-template={file}").err
    file.write_text("{{ unfinished")
    ran = run("chat", model, *FEW, f"--chat-template={file}")
    assert ran.status == 1
    assert "not valid Jinja" in ran.err


def test_a_base_model_asks_for_a_template_and_talks_with_one(
    run: Run, gemma_path: Path, tmp_path: Path
) -> None:
    refused = run("chat", str(gemma_path), *FEW, stdin=b"Hi\n")
    assert refused.status == 1
    assert "has no chat template" in refused.err
    assert "--chat-template" in refused.err

    page = (Path(__file__).parents[2] / "docs/reference/models.md").read_text(encoding="utf-8")
    [template] = re.findall(r"```jinja\n(.*?)```", page, flags=re.DOTALL)
    file = tmp_path / "gemma.jinja"
    file.write_text(template)
    ran = run(
        "chat", str(gemma_path), *FEW, f"--chat-template={file}", stdin=b"What is the capital of France?\n"
    )
    assert ran.status == 0
    assert counts(ran.err) == [(16, 0)]
