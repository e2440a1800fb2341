"""`ratoon pull` fetches models. What it downloads is tested where the downloading is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratoon.checkpoint.model_catalog import CATALOG
from ratoon.checkpoint.pull import PulledModel
from ratoon.cli import pull

Run = Callable[..., Any]


def test_without_a_name_it_lists_what_it_knows(run: Run) -> None:
    lines = run("pull").out.splitlines()
    assert [line.split()[0] for line in lines] == list(CATALOG)


def test_a_pulled_model_is_found_again(run: Run, model: str) -> None:
    ran = run("pull", "smollm2")
    assert (ran.status, ran.out) == (0, f"{model}\n")
    assert "was pulled before" in ran.err


def test_the_terms_of_a_model_are_shown_before_it_is_fetched(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pull, "pull", lambda name, progress: PulledModel(tmp_path, was_there=False))
    ran = run("pull", "gemma3-270m")
    assert (ran.status, ran.out) == (0, f"{tmp_path}\n")
    assert CATALOG["gemma3-270m"].terms in ran.err


def test_an_unknown_name_is_refused_with_the_known_ones(run: Run) -> None:
    ran = run("pull", "no-such-model")
    assert ran.status == 2
    assert "Known are smollm2" in ran.err
