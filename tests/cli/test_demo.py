"""`ratoon demo` shows that a hit changes nothing but the time."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ratoon.cli import demo
from ratoon.cli.demo import Asked, common_prefix

Run = Callable[..., Any]
SHORT = replace(demo.HANDBOOK, task="Handbook.\n{question}", num_tokens=3)
pytestmark = pytest.mark.usefixtures("smollm2_path")


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "HANDBOOK", replace(demo.HANDBOOK, num_tokens=3))


def test_json_holds_two_requests_of_which_the_second_reuses_the_first(run: Run) -> None:
    ran = run("demo", "--json")
    assert ran.status == 0
    found = json.loads(ran.out)
    assert found.keys() == {"requests", "hit_rate", "bit_equal", "versions"}
    first, second = found["requests"]
    assert first.keys() == {
        "prompt_tokens",
        "cached_tokens",
        "computed_tokens",
        "ttft_s",
        "block_tables",
        "text",
    }
    assert found["bit_equal"] is True
    assert first["cached_tokens"] == 0
    assert second["cached_tokens"] > 2000
    assert second["cached_tokens"] % 16 == 0
    assert second["cached_tokens"] + second["computed_tokens"] == second["prompt_tokens"]
    num_shared = second["cached_tokens"] // 16
    assert first["block_tables"][0][:num_shared] == second["block_tables"][0][:num_shared]
    total = first["prompt_tokens"] + second["prompt_tokens"]
    assert found["hit_rate"] == second["cached_tokens"] / total


def test_for_people_it_tells_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "HANDBOOK", SHORT)  # the document is not needed for this
    ran = run("demo")
    assert ran.status == 0
    assert demo.HANDBOOK.questions[0] in ran.out
    assert "the same tokens and the same logits, bit for bit" in ran.out


def test_another_answer_when_warm_is_a_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "HANDBOOK", SHORT)
    asked: list[Asked] = []
    ask = demo.Demonstration.ask

    def ask_and_spoil_the_last(self: demo.Demonstration, prompt: list[int]) -> Asked:
        asked.append(ask(self, prompt))
        if len(asked) == 3:
            asked[-1].logits[-1] = bytes(len(asked[-1].logits[-1]))
        return asked[-1]

    monkeypatch.setattr(demo.Demonstration, "ask", ask_and_spoil_the_last)
    ran = run("demo", "--json")
    assert ran.status == 1
    assert json.loads(ran.out)["bit_equal"] is False


def test_a_common_prefix_is_counted_from_the_ids() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_prefix([1, 2], [1, 2, 3]) == 2
    assert common_prefix([], [1]) == 0


def test_a_model_for_code_is_asked_about_code() -> None:
    assert demo.subject_for("qwen2.5-coder-0.5b") is demo.CODE
    assert demo.subject_for("smollm2") is demo.HANDBOOK
    assert "class BlockPool" in demo.CODE.prompt("Why?")
