"""`ratoon perplexity` scores a text in windows."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ratoon.cli.perplexity import cut
from ratoon.errors import EmptyPromptError
from ratoon.text.tokenizer import Tokenizer

GOLDEN = Path(__file__).parents[1] / "golden/smollm2/perplexity.json"
Run = Callable[..., Any]


class Letters:
    """A tokenizer in which every character is a token, and a text begins with token 0 if `bos`."""

    def __init__(self, *, bos: bool = False) -> None:
        self.start = [0] if bos else []

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return (self.start if add_special else []) + [ord(character) for character in text]


def windows(content: str, size: int, *, bos: bool = False) -> list[list[int]]:
    return cut(content, size, cast(Tokenizer, Letters(bos=bos)))


def test_recorded_windows_score_as_recorded(run: Run, model: str, tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text())
    file = tmp_path / "windows.json"
    file.write_text(json.dumps([window["ids"] for window in golden["windows"]]))
    found = json.loads(run("perplexity", model, str(file), "--json").out)
    for window, recorded in zip(found["windows"], golden["windows"], strict=True):
        assert window["count"] == len(recorded["ids"]) - 1
        assert window["nll_mean"] == pytest.approx(recorded["nll_mean"], rel=0.01)
    total = sum(window["nll_mean"] * window["count"] for window in found["windows"])
    assert found["nll_mean"] == pytest.approx(total / sum(window["count"] for window in found["windows"]))
    assert found["perplexity"] == math.exp(found["nll_mean"])


def test_for_people_it_is_a_line_per_window(run: Run, model: str, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("The capital of France is Paris. The capital of Italy is Rome.")
    first, second, total = run("perplexity", model, str(file), "--window=8").out.splitlines()
    assert first.startswith("window 0: ")
    assert second.startswith("window 1: ")
    assert "perplexity" in total


def test_text_is_cut_into_windows_and_a_lone_last_token_is_left_out() -> None:
    assert windows("abcde", 2) == [[97, 98], [99, 100]]


def test_each_window_of_a_text_begins_as_the_model_expects() -> None:
    assert windows("abc", 3, bos=True) == [[0, 97, 98], [0, 99]]


def test_token_ids_are_cut_as_they_are_and_lists_of_them_are_the_windows() -> None:
    assert windows("[1, 2, 3]", 2, bos=True) == [[1, 2]]
    assert windows("[[1, 2, 3], [4], [5, 6]]", 2, bos=True) == [[1, 2, 3], [5, 6]]


@pytest.mark.parametrize("content", ['{"a": 1}', "[1, true]", "[1, [2]]", "[" * 100_000, "12"])
def test_other_json_is_text(content: str) -> None:
    assert windows(content, 1 << 20) == [[ord(character) for character in content]]


@pytest.mark.parametrize("content", ["", "a", "[]", "[7]", "[[7]]"])
def test_nothing_to_score_is_refused(content: str) -> None:
    with pytest.raises(EmptyPromptError):
        windows(content, 8)


def test_a_window_of_one_token_is_refused(run: Run, model: str) -> None:
    ran = run("perplexity", model, "nowhere", "--window=1")
    assert (ran.status, ran.err) == (2, "error: A window must hold at least 2 tokens, not 1.\n")


def test_a_window_longer_than_the_context_is_refused_before_anything_is_scored(
    run: Run, model: str, tmp_path: Path
) -> None:
    file = tmp_path / "windows.json"
    file.write_text(json.dumps([[1, 2], [3] * 64]))
    ran = run("perplexity", model, str(file), "--max-model-len=64")
    assert ran.status == 2
    assert ran.err.startswith("error: A window has 64 tokens; here at most 63 can be scored at once.\nhint: ")


def test_a_file_that_is_not_there_is_refused(run: Run, model: str) -> None:
    ran = run("perplexity", model, "nowhere")
    assert (ran.status, ran.err) == (1, "error: nowhere cannot be read: No such file or directory.\n")
