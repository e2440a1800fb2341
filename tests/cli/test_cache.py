"""The command prints what the session did, one way for programs and one for people."""

import io
import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from ratoon.cli import cache
from ratoon.errors import CacheScriptError

SCRIPT: dict[str, Any] = {
    "num_blocks": 8,
    "block_size": 4,
    "groups": [{"kind": "full"}, {"kind": "sliding", "window": 4}],
    "ops": [
        {"op": "admit", "request": "r", "tokens": [1, 2, 3, 4, 5]},
        {"op": "compute", "request": "r"},
        {"op": "admit", "request": "too long", "ranges": [[0, 100]]},
        {"op": "reset"},
        {"op": "state"},
    ],
}


def run(*arguments: str) -> int:
    parser = ArgumentParser()
    cache.add_arguments(parser)
    return cache.run(parser.parse_args(arguments))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return path


def test_each_operation_prints_one_json_line(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(script)) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["op"] for line in lines] == ["admit", "compute", "admit", "reset", "state"]
    assert all("events" in line for line in lines)
    assert lines[1]["block_tables"] == [[1, 2], [3, 4]]


def test_a_dash_reads_the_script_from_stdin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(SCRIPT).encode())))
    assert run("-") == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_the_table_is_aligned_and_shows_states_below_their_rows(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(script), "--table") == 0
    lines = capsys.readouterr().out.splitlines()
    column = lines[0].index("block tables")
    assert lines[1][column:] == "1 2 | 3 4"
    assert lines[2][column:].startswith("1 2 | 3 4")
    assert "stored 1 (group 0, " in lines[2]
    assert "admitted no" in lines[3]
    assert lines[4].endswith("reset")
    assert lines[5] == "5  state"
    assert lines[6].strip() == "free queue: 5 6 7"
    assert lines[7].strip() == "ref counts: 1: 1, 2: 1, 3: 1, 4: 1"
    assert lines[8].strip() == "keyed blocks: -"


@pytest.mark.parametrize("form", [(), ("--table",)], ids=["json", "table"])
def test_what_was_done_before_an_impossible_operation_is_printed_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: tuple[str, ...]
) -> None:
    operations = [*SCRIPT["ops"][:2], {"op": "resume", "request": "r"}, {"op": "state"}]
    path = tmp_path / "impossible.json"
    path.write_text(json.dumps(SCRIPT | {"ops": operations}))
    with pytest.raises(CacheScriptError, match=r"Operation 3 \(resume\)") as caught:
        run(str(path), *form)
    assert caught.value.exit_status == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(form)
    assert lines[-1].endswith("}" if not form else ")")


def test_a_malformed_script_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "malformed.json"
    path.write_text(json.dumps(SCRIPT | {"ops": [*SCRIPT["ops"], {"op": "free"}]}))
    with pytest.raises(CacheScriptError, match="Operation 6"):
        run(str(path))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "not text"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "script.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CacheScriptError, match=r"script\.json"):
        run(str(path))


def test_a_folder_is_no_script(tmp_path: Path) -> None:
    with pytest.raises(CacheScriptError, match="cannot be read"):
        run(str(tmp_path))
