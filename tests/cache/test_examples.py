"""Every script under examples/cache runs, and the cache does in it what the page beside them says."""

from pathlib import Path
from typing import Any

import pytest

from ratoon.cache.script.reader import read_script
from ratoon.cache.script.session import ScriptSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "cache"

Lines = list[dict[str, Any]]


def run(name: str) -> Lines:
    return list(ScriptSession(read_script((EXAMPLES / f"{name}.json").read_text())).run())


def of(lines: Lines, op: str, request: str | None = None) -> Lines:
    return [line for line in lines if line["op"] == op and line.get("request") == request]


def stored(line: dict[str, Any]) -> list[int]:
    return [event["block_id"] for event in line["events"] if event["event"] == "stored"]


def evicted(line: dict[str, Any]) -> list[int]:
    return [event["block_id"] for event in line["events"] if event["event"] == "evicted"]


def test_the_page_tells_of_every_script_and_of_no_other() -> None:
    told = {part.split(".json")[0] for part in (EXAMPLES / "README.md").read_text().split("**[")[1:]}
    assert told == {path.stem for path in EXAMPLES.glob("*.json")}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_every_script_runs_to_its_end(path: Path) -> None:
    script = read_script(path.read_text())
    assert len(list(ScriptSession(script).run())) == len(script.operations)


def test_time_line() -> None:
    lines = run("time-line")
    (admission,) = of(lines, "admit", "pupil")
    assert admission["cached_tokens"] == 8
    assert admission["block_tables"] == ((7, 19, 23),)
    first, second = of(lines, "compute", "pupil")
    assert stored(first) == []
    assert stored(second) == [23]


def test_two_copies() -> None:
    lines = run("two-copies")
    state = of(lines, "state")[0]
    assert state["num_keys"] == 1
    assert state["keyed_blocks"] == [1, 2]
    (third,) = of(lines, "admit", "c")
    assert third["block_tables"][0][0] == 1


def test_in_flight() -> None:
    lines = run("in-flight")
    chunks = of(lines, "compute", "b")
    assert [chunk["cached_tokens"] for chunk in chunks] == [4, 2]
    assert [chunk["computed_tokens"] for chunk in chunks] == [2, 2]
    assert of(lines, "admit", "b")[0]["block_tables"] == ((4, 5, 6),)
    assert [chunk["block_tables"] for chunk in chunks] == [((1, 5, 6),), ((1, 2, 6),)]


def test_sliding_window() -> None:
    lines = run("sliding-window")
    (computed,) = of(lines, "compute", "first")
    assert computed["block_tables"] == ((1, 2, 3, 4), (0, 0, 7, 8))
    (admission,) = of(lines, "admit", "second")
    assert admission["cached_tokens"] == 16
    assert admission["block_tables"] == ((1, 2, 3, 4, 9), (0, 0, 7, 8, 10))
    assert of(lines, "state")[-1]["free_queue"] == [9, 10, 6, 5, 4, 8, 3, 7, 2, 1]


def test_agreement() -> None:
    lines = run("agreement")
    assert evicted(of(lines, "admit", "stranger")[0]) == [5]
    assert of(lines, "admit", "longer")[0]["cached_tokens"] == 16
    assert of(lines, "admit", "shorter")[0]["cached_tokens"] == 0


def test_full_hit() -> None:
    lines = run("full-hit")
    (admission,) = of(lines, "admit", "same")
    assert admission["cached_tokens"] == 7
    assert admission["block_tables"] == ((1, 2),)
    last_token = of(lines, "compute", "same")[0]
    assert last_token["computed_tokens"] == 1
    assert stored(last_token) == []


def test_eviction() -> None:
    lines = run("eviction")
    assert of(lines, "state")[0]["free_queue"] == [4, 5, 6, 3, 2, 1]
    assert evicted(of(lines, "admit", "b")[0]) == [3, 2]
    assert of(lines, "admit", "a again")[0]["cached_tokens"] == 4


def test_preemption() -> None:
    lines = run("preemption")
    assert [line["reserved"] for line in of(lines, "append", "old")] == [False, True]
    (resumption,) = of(lines, "resume", "young")
    assert resumption["cached_tokens"] == 4
    stats = of(lines, "state")[0]["stats"]
    assert (stats["num_hit_tokens"], stats["num_preempted_hit_tokens"]) == (0, 4)


def test_drafts() -> None:
    lines = run("drafts")
    first, second = of(lines, "verify", "r")
    assert (first["num_known"], first["num_computed"], stored(first)) == (6, 6, [1])
    assert (second["num_known"], stored(second)) == (6, [])
    assert stored(of(lines, "compute", "r")[-1]) == [2]


def test_identity() -> None:
    admissions = {line["request"]: line["cached_tokens"] for line in run("identity") if line["op"] == "admit"}
    assert admissions == {
        "plain": 0,
        "plain again": 8,
        "salted": 0,
        "other salt": 0,
        "same salt": 8,
        "adapted": 0,
        "picture": 4,
        "other picture": 4,
        "shifted picture": 4,
    }


def test_reset() -> None:
    lines = run("reset")
    assert of(lines, "reset")[0]["dropped_blocks"] == 2
    assert of(lines, "state")[0]["num_keys"] == 0
    assert stored(of(lines, "compute", "running")[-1]) == []
    assert stored(of(lines, "compute", "new")[0]) == [4]
