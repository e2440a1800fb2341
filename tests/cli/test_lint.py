"""`ratoon lint` reads logs and says what costs how much."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

RULES = "".join(f"Rule {number}: leave plot {number} as tidy as it was found.\n" for number in range(20))


def log(tmp_path: Path, *systems: str) -> str:
    lines = [
        json.dumps({"messages": [{"role": "system", "content": each}, {"role": "user", "content": "Well?"}]})
        for each in systems
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_finding_is_shown_with_its_cost_and_a_proposal(run: Run, tmp_path: Path) -> None:
    ran = run("lint", log(tmp_path, f"It is 11:24.\n{RULES}", f"It is 11:25.\n{RULES}"))
    assert ran.status == 1
    assert "timestamp: a date or time before text that stays the same (system)" in ran.out
    assert "in 1 request; line 2, compared with line 1" in ran.out
    assert "Move it behind the stable part" in ran.out


def test_json_holds_one_object_per_finding(run: Run, tmp_path: Path) -> None:
    ran = run("lint", log(tmp_path, f"It is 11:24.\n{RULES}", f"It is 11:25.\n{RULES}"), "--json")
    [found] = [json.loads(line) for line in ran.out.splitlines()]
    assert (found["rule"], found["role"], found["num_requests"]) == ("timestamp", "system", 1)
    assert found["tokens_per_request"] == found["example"]["num_tokens"] > 200


def test_a_clean_log_passes(run: Run, tmp_path: Path) -> None:
    ran = run("lint", log(tmp_path, RULES, RULES))
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("Nothing found")


def test_several_files_are_one_log(run: Run, tmp_path: Path) -> None:
    first = log(tmp_path, f"It is 11:24.\n{RULES}")
    (tmp_path / "second").mkdir()
    second = log(tmp_path / "second", f"It is 11:25.\n{RULES}")
    assert "line 2, compared with line 1" in run("lint", first, second).out


def test_tokens_are_counted_with_a_model_s_tokenizer(run: Run, tmp_path: Path, model: str) -> None:
    name = log(tmp_path, f"It is 11:24.\n{RULES}", f"It is 11:25.\n{RULES}")
    found = json.loads(run("lint", name, "--json", "--tokenizer", model).out)
    assert found["tokens_per_request"] != json.loads(run("lint", name, "--json").out)["tokens_per_request"]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"messages": 3}'])
def test_what_is_no_log_is_refused_by_line(run: Run, line: str) -> None:
    ran = run("lint", "-", stdin=f'\n{{"prompt": "x"}}\n{line}\n'.encode())
    assert ran.status == 2
    assert ran.err.startswith("error: -, line 3, is no request")
