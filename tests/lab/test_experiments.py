"""Every experiment, whole, against a server that is no more than a cache."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratoon.errors import InvalidParameterError
from ratoon.lab.bench import Bench
from ratoon.lab.experiments.burst import Burst
from ratoon.lab.experiments.counterexamples import CASES, Counterexamples
from ratoon.lab.experiments.pair import Pair
from ratoon.lab.experiments.replay import Replay, file_digest
from ratoon.lab.experiments.settings import Experiment, from_json, to_json
from ratoon.lab.experiments.sweep import Sweep
from ratoon.lab.report.catalog import REPORTS
from ratoon.lab.report.report import Report
from ratoon.lab.run_store import RunStore

MOONCAKE = Path(__file__).with_name("mooncake_excerpt.jsonl")
PAIR = Pair(repetitions=2)
SWEEP = Sweep(prefix_lens=(32, 64), output_lens=(1, 3), question_len=8, repetitions=2)
BURST = Burst(
    num_prompts=6, num_prefixes=2, prefix_len=64, suffix_len=16, output_len=4,
    request_rate=(float("inf"), 500.0), num_clients=2, num_rounds=3, num_documents=3,
    document_length=128, repeat_count=2, max_total_tokens=192,
)  # fmt: skip

MakeBench = Callable[..., Bench]


class _Run:
    """Measures an experiment against fake servers and reports it."""

    def __init__(self, make_bench: MakeBench) -> None:
        self._make_bench = make_bench

    def __call__(self, experiment: Experiment, *options: str) -> tuple[RunStore, Report]:
        name = type(experiment).__name__.lower()
        bench = self._make_bench(name, to_json(experiment), *options)
        experiment.measure(bench)
        return bench.store, REPORTS[name](RunStore.open(bench.store.folder))


@pytest.fixture
def run(make_bench: MakeBench) -> _Run:
    return _Run(make_bench)


def table(report: Report, name: str) -> list[dict[str, Any]]:
    found = next(table for table in report.tables if table.name == name)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_a_pair_hits_the_published_1712_of_1729_tokens(run: _Run) -> None:
    _, report = run(PAIR)
    first, second, *_ = table(report, "pair")

    assert (first["prompt (tokens)"], first["hits (tokens)"]) == ("1,727", "0")
    assert (second["queries (tokens)"], second["hits (tokens)"]) == ("1,729", "1,712")
    assert report.findings[0].startswith("The hit is certain: in each of 2 repetitions")
    assert "not resolved by this sample (too few repetitions)" in report.findings[1]
    assert not report.failures


def test_a_pair_says_so_where_the_hit_is_not_the_expected_one(run: _Run) -> None:
    _, report = run(PAIR, "--hide-hits", "16")

    assert report.findings[0].startswith("The hits are not those worked out from the token ids")


def test_a_pair_takes_the_answers_word_where_there_are_no_counters(run: _Run) -> None:
    _, report = run(PAIR, "--no-metrics")

    assert report.findings[0].startswith("The hit is certain")
    assert table(report, "pair")[1]["queries (tokens)"] == "\N{EN DASH}"


def test_a_failed_request_is_shown(run: _Run) -> None:
    _, report = run(PAIR, "--fail-after", "4")  # the warm-up, one pair, and half of another

    assert report.failures == ("second request: HTTP 500: out of order",)
    assert table(report, "pair")[0]["n"] == 1


def test_a_server_that_answers_nothing_leaves_failed_pairs(run: _Run) -> None:
    _, report = run(PAIR, "--cut-streams")

    assert report.findings == ("No pair was measured.",)
    assert len(report.failures) == 2
    assert "the stream ended early. (2 times)" in report.failures[0]


def test_a_server_that_does_not_warm_up_leaves_a_failed_cell(run: _Run) -> None:
    _, report = run(SWEEP, "--fail-after", "1")

    assert len(report.failures) == 16  # one line per cell, for both rounds
    assert all(failure.endswith("out of order. (2 times)") for failure in report.failures)
    assert {row["failed"] for row in table(report, "cells-ttft")} == {2}


def test_a_sweep_measures_every_cell_as_often_as_asked(run: _Run) -> None:
    store, report = run(SWEEP)
    cells = table(report, "cells-tokens")

    assert len(cells) == 2 * 2 * 2 * 2
    assert {row["n"] for row in cells} == {2}
    for row in cells:
        cached = row["caching"] == "on" and row["interference"] == "none"
        assert (
            row["hits (tokens)"]
            == row["expected (tokens)"]
            == (str(row["prefix (tokens)"]) if cached else "0")
        )
    assert "16 of 16 answers are the same text with caching on as with caching off." in report.findings
    assert "32 of 32 requests hit exactly the tokens worked out from the token ids." in report.findings
    assert not report.failures
    keys = [row["key"].split("/", 1)[1] for row in store.rows]
    assert set(keys[:16]) == set(keys[16:])
    assert keys[:16] != keys[16:]  # every round has an order of its own


def test_a_sweep_begins_no_round_after_its_time(run: _Run) -> None:
    store, report = run(replace(SWEEP, max_seconds=1e-3))

    assert {row["repetition"] for row in store.rows} == {0}
    assert report.findings[0].startswith("1 of 2 rounds were measured")


def test_all_counterexamples_pass_on_a_right_cache(run: _Run) -> None:
    _, report = run(Counterexamples())
    rows = {row["case"]: row for row in table(report, "counterexamples")}

    assert list(rows) == list(CASES)
    assert {row["verdict"] for row in rows.values()} == {"pass"}
    assert rows["partial last block"]["probe: measured"] == 80
    assert rows["full hit"]["probe: measured"] == 159
    assert rows["other tenant"]["control: measured"] == 159


def test_a_wrong_hit_fails_its_case(run: _Run) -> None:
    _, report = run(Counterexamples(), "--hide-hits", "1")
    verdicts = {row["case"]: row["verdict"] for row in table(report, "counterexamples")}

    assert set(verdicts.values()) == {"FAIL: other hits than predicted"}  # the controls give it away
    assert "full hit: FAIL: other hits than predicted" in report.failures


def test_a_case_that_cannot_be_run_is_not_dropped(run: _Run) -> None:
    _, report = run(Counterexamples(), "--no-metrics")
    verdicts = {row["case"]: row["verdict"] for row in table(report, "counterexamples")}

    assert verdicts["evicted before the hit"] == "failed to run"
    assert "Case “evicted before the hit”: failed to run." in report.findings


def test_a_burst_accounts_for_every_prompt_token(run: _Run) -> None:
    _, report = run(BURST)
    rows = {row["workload"]: row for row in table(report, "tokens")}

    assert list(rows) == BURST.names()
    for row in rows.values():
        assert row["state"] == "whole"
        assert row["hits, answers (tokens)"] == row["hits, counters (tokens)"]
        assert row["hits, answers (tokens)"] + row["computed (tokens)"] == row["prompt (tokens)"]
        lost = row["evicted, then missed (tokens)"] + row["not yet there (tokens)"]
        assert row["hits, answers (tokens)"] + lost == row["ideal (tokens)"]
    assert rows["prefixes, at once"]["requests"] == 6
    assert rows["prefixes, at once"]["ideal (tokens)"] == 4 * 64


def test_a_conversation_hits_what_was_said_before(run: _Run) -> None:
    _, report = run(replace(BURST, workloads=("conversations",), num_clients=1, max_total_tokens=1_000))
    (row,) = table(report, "tokens")

    # Turns of 64 + 16, then + 4 + 16 each; of a reply all but the last token is computed.
    assert row["prompt (tokens)"] == 80 + 100 + 120
    assert row["hits, answers (tokens)"] == row["ideal (tokens)"] == 80 + 96


def test_tile_order_evicts_what_interleave_order_hits(run: _Run) -> None:
    _, report = run(replace(BURST, workloads=("documents",)))
    tile, interleave = table(report, "tokens")

    assert tile["hits, answers (tokens)"] == 0
    assert tile["evicted, then missed (tokens)"] == tile["ideal (tokens)"] == 3 * 128
    assert interleave["hits, answers (tokens)"] == interleave["ideal (tokens)"] == 3 * 128


def test_a_workload_that_was_not_reached_is_shown(make_bench: MakeBench) -> None:
    report = REPORTS["burst"](make_bench("burst", to_json(BURST)).store)

    assert [row["state"] for row in table(report, "tokens")] == ["not run"] * 5
    assert "conversations: nothing was measured (not run)." in report.findings


def test_failed_requests_of_a_burst_are_counted(run: _Run) -> None:
    _, report = run(replace(BURST, workloads=("documents",), repeat_mode=("tile",)), "--fail-after", "4")
    (row,) = table(report, "tokens")

    assert (row["requests"], row["state"]) == (3, "3 failed")
    assert report.failures == ("documents, tile: HTTP 500: out of order (3 times)",)


def test_a_mooncake_trace_is_replayed_with_its_sharing(run: _Run) -> None:
    replay = Replay(trace=str(MOONCAKE), trace_digest=file_digest(MOONCAKE), num_prompts=40, time_scale=0)
    _, report = run(replay)
    (row,) = table(report, "tokens")
    lines = [json.loads(line) for line in MOONCAKE.read_text().splitlines()[:40]]

    assert row["prompt (tokens)"] == sum(max(1, round(line["input_length"] / 32)) for line in lines)
    seen, shared = set[int](), 0
    for line in lines:
        full = line["hash_ids"][: round(line["input_length"] / 32) // 16]
        shared += 16 * sum(hash_id in seen for hash_id in full)
        seen |= set(full)
    assert row["ideal (tokens)"] == shared > 0


def test_a_transcript_is_replayed_turn_by_turn(run: _Run, tmp_path: Path) -> None:
    words = " ".join(f"word{index}" for index in range(64))
    messages = [
        {"role": "user", "content": words},
        {"role": "assistant", "content": "one two three"},
        {"role": "user", "content": "and then"},
        {"role": "assistant", "content": "four"},
    ]
    trace = tmp_path / "chat.jsonl"
    trace.write_text(json.dumps(messages) + "\n")

    store, report = run(Replay(trace=str(trace), trace_digest=file_digest(trace)))
    (row,) = table(report, "tokens")

    assert row["requests"] == 2
    assert row["ideal (tokens)"] == row["hits, answers (tokens)"] == 64
    lengths = [row["answer"]["completion_tokens"] for row in store.rows if row["role"] == "request"]
    assert lengths == [3, 1]


def test_a_replay_goes_on_only_with_the_same_file(run: _Run) -> None:
    with pytest.raises(InvalidParameterError, match="not the file"):
        run(Replay(trace=str(MOONCAKE), trace_digest="another"))


class _StopAfter:
    """A progress that interrupts at its n-th call."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def __call__(self, stage: str, done: int, total: int) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "experiment", [PAIR, SWEEP, Counterexamples(), BURST], ids=lambda item: type(item).__name__
)
def test_an_interrupted_run_keeps_its_samples_and_goes_on(
    make_bench: MakeBench, experiment: Experiment
) -> None:
    name = type(experiment).__name__.lower()
    bench = make_bench(name, to_json(experiment))
    with pytest.raises(KeyboardInterrupt):
        experiment.measure(replace(bench, progress=_StopAfter(2)))
    kept = RunStore.open(bench.store.folder).rows
    REPORTS[name](bench.store)  # a report of what there is

    experiment.measure(replace(bench, store=RunStore.resume(bench.store.folder)))
    rows = RunStore.open(bench.store.folder).rows
    whole = REPORTS[name](RunStore.open(bench.store.folder))

    assert rows[: len(kept)] == kept
    assert not whole.failures
    assert not any("interrupted" in finding or "of 2 rounds" in finding for finding in whole.findings)
    experiment.measure(replace(bench, store=RunStore.resume(bench.store.folder)))
    assert RunStore.open(bench.store.folder).rows == rows  # nothing is done twice


def test_settings_survive_json_with_infinity() -> None:
    assert from_json(Burst, json.loads(json.dumps(to_json(BURST)))) == BURST
    assert '"inf"' in json.dumps(to_json(BURST), allow_nan=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pair(prompt_lens=(100, 90), prefix_len=95),
        lambda: Pair(prompt_lens=(100,)),
        lambda: Counterexamples(prompt_blocks=1),
        lambda: Burst(num_prompts=2, num_prefixes=3),
        lambda: Replay(trace="x", length_scale=0),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], Experiment]) -> None:
    with pytest.raises(InvalidParameterError):
        make()
