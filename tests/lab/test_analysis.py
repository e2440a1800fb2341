"""Analyses of samples with known times."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratoon.errors import LabError
from ratoon.lab.answer import Answer
from ratoon.lab.report import compare, pair, sweep
from ratoon.lab.report.samples import Sample, good_samples, spread
from ratoon.lab.report.token_fates import token_fates
from ratoon.lab.run_store import RunStore

MakeAnswer = Callable[..., Answer]
MANIFEST: dict[str, Any] = {
    "command": "ratoon lab",
    "machine": {"cores": "2"},
    "versions": {"ratoon": "1"},
    "server": {"model": "fake", "model digest": "00ff", "block size": "16"},
}


class _Runs:
    """Makes runs of made-up samples."""

    def __init__(self, folder: Path, make_answer: MakeAnswer) -> None:
        self._folder = folder
        self._make_answer = make_answer

    def pair(
        self, name: str, first_s: float, second_s: float, *, count: int = 8, **manifest: Any
    ) -> RunStore:
        """Eight pairs whose first tokens take these times, a little more each time."""
        settings = {"prefix_len": 96, "output_len": 3, "repetitions": count, "seed": 0}
        store = RunStore.create(
            self._folder / name, MANIFEST | {"experiment": "pair", "settings": settings} | manifest
        )
        for repetition in range(count):
            for role, ttft_s, hits in (("first", first_s, 0), ("second", second_s, 96)):
                answer = self._make_answer(ttft_s=ttft_s * (1 + repetition / 100), cached=hits)
                store.append(
                    {
                        "key": f"{repetition}/{role}",
                        "cell": {"request": role},
                        "repetition": repetition,
                        "expected_tokens": hits,
                        "counted": {"queries": 100, "hits": hits},
                        "answer": answer.to_json(),
                        "error": None,
                    }
                )
        return store

    def sweep(self, name: str, ttft_s: dict[tuple[str, str], float]) -> RunStore:
        """Six rounds of one prefix; gaps of 10 ms, a little longer now with caching, now without."""
        settings = {"prefix_lens": [512], "output_lens": [1, 10, 100], "repetitions": 6}
        store = RunStore.create(self._folder / name, MANIFEST | {"experiment": "sweep", "settings": settings})
        for repetition in range(6):
            for (caching, interference), seconds in ttft_s.items():
                gap_s = 0.01 if (caching == "on") == (repetition % 2 == 0) else 0.0101
                for output_len in (1, 10, 100):
                    hits = 512 if (caching, interference) == ("on", "none") else 0
                    answer = self._make_answer(
                        ttft_s=seconds + repetition / 1e4,
                        gap_s=gap_s,
                        output=output_len,
                        prompt=544,
                        cached=hits,
                    )
                    cell = {"prefix_len": 512, "caching": caching, "interference": interference}
                    cell["output_len"] = output_len
                    store.append(
                        {
                            "key": f"{repetition}/{cell}",
                            "cell": cell,
                            "repetition": repetition,
                            "expected_tokens": hits,
                            "counted": {"queries": 544, "hits": hits},
                            "answer": answer.to_json(),
                            "error": None,
                        }
                    )
        return store


@pytest.fixture
def runs(tmp_path: Path, make_answer: MakeAnswer) -> _Runs:
    return _Runs(tmp_path, make_answer)


COLD_AND_WARM = {("off", "none"): 2.0, ("off", "others"): 2.0, ("on", "none"): 0.1, ("on", "others"): 2.0}


def test_a_clear_gain_is_resolved(runs: _Runs) -> None:
    hit, ttft, _ = pair.report(runs.pair("run", 2.0, 0.1)).findings

    assert hit.startswith(
        "The hit is certain: in each of 8 repetitions the second request found 96 of its 100"
    )
    assert ttft.startswith("The gain in TTFT is resolved: it falls from 2.07 s to 0.103 s")
    assert ttft.endswith("the second request takes 5.00 % of the first one's time.")


def test_a_hit_without_a_gain_is_said_to_be_that(runs: _Runs) -> None:
    _, ttft, _ = pair.report(runs.pair("run", 1.0, 1.0)).findings

    assert "A gain in TTFT is not resolved by this sample (the interval includes zero)" in ttft


def test_counters_that_contradict_an_answer_are_no_certain_hit(runs: _Runs) -> None:
    store = runs.pair("run", 2.0, 0.1)
    store.rows[1]["counted"]["hits"] = 95

    assert pair.report(store).findings[0].startswith("The hits are not those worked out")


def test_a_sweep_finds_what_was_put_in(runs: _Runs) -> None:
    report = sweep.report(runs.sweep("run", COLD_AND_WARM))
    ttft, itl, dilution, eviction, *_ = report.findings

    assert "from 2,000 ms to 100 ms, to 5.0" in ttft
    assert itl.startswith("ITL is not seen to differ")
    assert "saves 95.0 %, 90.9 %, 63.4 % of E2E" in dilution
    assert "18 of 18 requests found nothing; their TTFT is 100 %" in eviction
    cells = next(table for table in report.tables if table.name == "cells-ttft")
    assert {row[cells.columns.index("P95 (s)")] for row in cells.rows} == {None}  # six samples have no P95
    gaps = next(table for table in report.tables if table.name == "cells-itl")
    p99 = {row[3]: row[gaps.columns.index("P99 (ms)")] for row in gaps.rows}
    assert p99[1] is p99[10] is None  # of no gap, and of 54
    assert p99[100] == pytest.approx(10.1)  # of 594


def test_a_sweep_that_was_cut_short_is_still_a_report(runs: _Runs) -> None:
    store = runs.sweep("run", COLD_AND_WARM)
    del store.rows[5:]

    report = sweep.report(store)

    assert report.findings[0].startswith("0 to 1 of 6 rounds were measured")
    assert len(next(table for table in report.tables if table.name == "cells-ttft").rows) == 12


def test_a_repeated_piece_of_work_counts_once(runs: _Runs) -> None:
    store = runs.pair("run", 2.0, 0.1)
    store.append(store.rows[0])

    assert len(good_samples(store.rows)) == 16


def fate_rows(make_answer: MakeAnswer, *requests: tuple[range, float, float, int]) -> list[Sample]:
    """Samples of prompt, sent at, ended at, cached."""
    return [
        Sample(
            {"prompt": list(prompt)},
            make_answer(sent_at_s=sent, ttft_s=ended - sent, output=1, prompt=len(prompt), cached=cached),
        )
        for prompt, sent, ended, cached in requests
    ]


def test_a_prefix_that_finished_and_was_missed_was_evicted(make_answer: MakeAnswer) -> None:
    samples = fate_rows(make_answer, (range(40), 0.0, 1.0, 0), (range(40), 2.0, 3.0, 0))

    second = token_fates(samples, 16, "last token")[1]

    assert (second.ideal, second.cached, second.evicted, second.not_yet, second.new) == (32, 0, 32, 0, 8)


def test_a_prefix_that_was_still_running_was_not_there_yet(make_answer: MakeAnswer) -> None:
    samples = fate_rows(make_answer, (range(40), 0.0, 3.0, 0), (range(40), 1.0, 4.0, 16))

    second = token_fates(samples, 16, "last token")[1]

    assert (second.ideal, second.cached, second.evicted, second.not_yet) == (32, 16, 0, 16)
    assert not second.warm


def test_numbers_that_agree_are_one_and_others_a_range() -> None:
    assert spread([1_712, 1_712]) == "1,712"
    assert spread([0, 1_712]) == "0 to 1,712"


def test_two_runs_are_compared_cell_by_cell(runs: _Runs) -> None:
    report = compare.compare(runs.pair("a", 2.0, 0.1), runs.pair("b", 1.0, 0.1))
    rows = {(row[0], row[1]): row[-1] for row in report.tables[0].rows}
    cold = rows["request first", "TTFT"]

    assert cold.value == pytest.approx(0.5)  # type: ignore[union-attr]
    assert cold.excludes(1)  # type: ignore[union-attr]
    assert not rows["request second", "TTFT"].excludes(1)  # type: ignore[union-attr]
    assert report.findings[0] == (
        "Of 6 ratios, B is faster in 2, slower in 0, and in 4 the samples resolve no difference."
    )


def test_what_differs_between_compared_runs_is_said(runs: _Runs) -> None:
    report = compare.compare(runs.pair("a", 2.0, 0.1), runs.pair("b", 2.0, 0.1, versions={"ratoon": "2"}))

    assert report.findings[1] == "Conditions that differ: ratoon."


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"experiment": "sweep"}, "experiment pair and sweep"),
        ({"settings": {"prefix_len": 95, "output_len": 3}}, "prefix_len 96 and 95"),
        ({"server": MANIFEST["server"] | {"model digest": "11"}}, "model digest 00ff and 11"),
    ],
)
def test_unlike_runs_are_not_compared(runs: _Runs, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(LabError, match=reason):
        compare.compare(runs.pair("a", 2.0, 0.1), runs.pair("b", 2.0, 0.1, **change))


def test_runs_of_other_sizes_and_seeds_are_alike(runs: _Runs) -> None:
    compare.compare(runs.pair("a", 2.0, 0.1), runs.pair("b", 2.0, 0.1, count=6))


def test_runs_without_a_common_cell_are_not_compared(runs: _Runs) -> None:
    with pytest.raises(LabError, match="No cell"):
        compare.compare(runs.pair("a", 2.0, 0.1), runs.pair("b", 2.0, 0.1, count=0))
