"""The report of `Sweep`: what each factor does to each latency."""

from collections.abc import Sequence
from typing import Any

from ratoon.lab.report import sweep_plots
from ratoon.lab.report.report import Report, Section, Table, Value, write_estimate, write_number
from ratoon.lab.report.samples import Sample, all_gaps_ms, failures, numbers, spread
from ratoon.lab.report.sweep_cells import (
    Cells,
    e2e_s,
    median_gap_s,
    medians,
    pairs,
    ratio,
    read_cells,
    ttft_s,
)
from ratoon.lab.run_store import RunStore
from ratoon.lab.statistics import Summary, summarise

STATISTICS = (
    "Medians carry their exact 95 % interval from order statistics, which takes 6 samples. "
    "P95 is given from 20 samples on, P99 from 100: with fewer they would be the largest value under "
    "another name. n says how many there were.",
    "Caching on and off are compared in pairs: the same prompt in the same round, on two servers started "
    "for it. "
    "A round visits all groups in random order, so that a change of the machine's speed meets all alike.",
    "ITL samples are all gaps of all answers in a cell; gaps of one answer are not independent of each "
    "other.",
    "Each visit starts a server, warms it up on an unrelated prompt and has the prefix computed once, "
    "unmeasured. "
    "“Others” means: other prefixes filled the pool between that and the measured request.",
)


def report(run: RunStore) -> Report:
    """Analyse a run of `Sweep`, whole or interrupted."""
    cells = read_cells(run)
    failed = failures(run.rows, _cell_name)
    question = "How do prefix length, output length, caching and interference act on each latency?"
    if not any(cells.values()):
        return Report(
            "Sweep", question, ("No cell was measured.",), (_cells_section(run, cells),), failed, STATISTICS
        )
    prefix_lens, output_lens = (
        run.manifest["settings"]["prefix_lens"],
        run.manifest["settings"]["output_lens"],
    )
    findings = [
        *_rounds_finding(run, cells),
        *(_ttft_finding(cells, prefix_len) for prefix_len in prefix_lens),
        *_itl_finding(cells),
        *_dilution_finding(cells, max(prefix_lens), output_lens),
        *_eviction_finding(cells),
        *_equality_finding(cells),
    ]
    sections = (
        Section(
            "Time to first token",
            "What a hit saves is the prefill of the prefix.",
            (sweep_plots.ttft(cells, prefix_lens),),
            (_ttft_table(cells, prefix_lens),),
        ),
        Section(
            "End to end",
            "The saving is the same whatever the output length, and so a smaller share of a longer answer.",
            (sweep_plots.e2e(cells, prefix_lens, output_lens),),
            (_e2e_table(cells),),
        ),
        Section(
            "Between tokens",
            "Once the first token is there, a hit has done its work.",
            (sweep_plots.itl(cells, prefix_lens),),
        ),
        _cells_section(run, cells),
    )
    return Report("Sweep", question, tuple(findings), sections, failed, STATISTICS)


def _rounds_finding(run: RunStore, cells: Cells) -> list[str]:
    counts = [len(samples) for samples in cells.values()]
    asked = run.manifest["settings"]["repetitions"]
    if min(counts) == asked:
        return []
    return [
        f"{min(counts)} to {max(counts)} of {asked} rounds were measured: the time set for the run was "
        "over, it was interrupted, "
        "or cells failed. --resume goes on."
    ]


def _ttft_finding(cells: Cells, prefix_len: int) -> str:
    found = pairs(cells, prefix_len=prefix_len, interference="none")
    change = ratio(found, ttft_s)
    if change is None:
        return f"Prefix of {prefix_len:,} tokens: TTFT was not measured with caching both off and on."
    off, on = (estimate.value if estimate else 0.0 for estimate in medians(found, ttft_s))
    verdict = "" if change.excludes(1) else " This is not resolved by the sample."
    return (
        f"Prefix of {prefix_len:,} tokens: a hit takes TTFT from {write_number(off * 1e3)} ms to "
        f"{write_number(on * 1e3)} ms, to {write_estimate(change, '%', 100)}.{verdict}"
    )


def _itl_finding(cells: Cells) -> list[str]:
    found = [pair for pair in pairs(cells, interference="none") if pair[0].answer.itl_s]
    change = ratio(found, median_gap_s)
    if change is None:
        return []
    verdict = "differs" if change.excludes(1) else "is not seen to differ"
    return [f"ITL {verdict} between caching on and off: on / off is {write_estimate(change, '%', 100)}."]


def _dilution_finding(cells: Cells, prefix_len: int, output_lens: Sequence[int]) -> list[str]:
    changes = [
        ratio(pairs(cells, prefix_len=prefix_len, interference="none", output_len=output_len), e2e_s)
        for output_len in output_lens
    ]
    saved = [f"{write_number(100 - 100 * change.value)} %" for change in changes if change is not None]
    if len(saved) < len(changes):
        return []
    lengths = ", ".join(f"{output_len:,}" for output_len in output_lens)
    return [
        f"Output dilutes: with a prefix of {prefix_len:,} tokens and {lengths} output tokens a hit saves "
        f"{', '.join(saved)} of E2E."
    ]


def _eviction_finding(cells: Cells) -> list[str]:
    evicted = [
        sample for cell, samples in cells.items() if cell[1:3] == ("on", "others") for sample in samples
    ]
    hits = [sample.hit_tokens for sample in evicted]
    change = ratio(pairs(cells, interference="others"), ttft_s)
    if not evicted or None in hits or change is None:
        return []
    missed = sum(hit == 0 for hit in hits)
    return [
        f"Eviction takes it all back: after other prefixes filled the pool, {missed} of {len(hits)} "
        "requests found nothing, "
        f"and their TTFT is {write_estimate(change, '%', 100)} of that with caching off."
    ]


def _equality_finding(cells: Cells) -> list[str]:
    found = pairs(cells)
    equal = sum(off.answer.text_digest == on.answer.text_digest for off, on in found)
    samples = [sample for group in cells.values() for sample in group if sample.hit_tokens is not None]
    expected = sum(sample.as_expected for sample in samples)
    return [
        f"{equal} of {len(found)} answers are the same text with caching on as with caching off.",
        f"{expected} of {len(samples)} requests hit exactly the tokens worked out from the token ids.",
    ]


def _ttft_table(cells: Cells, prefix_lens: Sequence[int]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for prefix_len in prefix_lens:
        for interference in ("none", "others"):
            found = pairs(cells, prefix_len=prefix_len, interference=interference)
            rows.append((prefix_len, interference, len(found), *medians(found, ttft_s), ratio(found, ttft_s)))
    columns = ("prefix (tokens)", "interference", "pairs", "TTFT off (s)", "TTFT on (s)", "on / off")
    return Table("ttft", "TTFT with caching off and on, over all output lengths.", columns, tuple(rows), True)


def _e2e_table(cells: Cells) -> Table:
    rows: list[tuple[Value, ...]] = []
    for cell in cells:
        if (cell.caching, cell.interference) == ("off", "none"):
            found = pairs(cells, prefix_len=cell.prefix_len, interference="none", output_len=cell.output_len)
            rows.append(
                (cell.prefix_len, cell.output_len, len(found), *medians(found, e2e_s), ratio(found, e2e_s))
            )
    columns = ("prefix (tokens)", "output (tokens)", "pairs", "E2E off (s)", "E2E on (s)", "on / off")
    return Table("e2e", "E2E with caching off and on, no interference.", columns, tuple(rows), True)


def _cells_section(run: RunStore, cells: Cells) -> Section:
    factors = ("prefix (tokens)", "caching", "interference", "output (tokens)", "n", "failed")
    failed = [tuple(row["cell"].values()) for row in run.rows if row.get("error") is not None]
    starts = {cell: (*cell, len(samples), failed.count(cell)) for cell, samples in cells.items()}
    tables = []
    for name, unit, values in (
        ("TTFT", "s", lambda samples: numbers(samples, lambda answer: answer.ttft_s)),
        ("E2E", "s", lambda samples: numbers(samples, lambda answer: answer.end_s)),
        (
            "TPOT",
            "ms",
            lambda samples: [1e3 * tpot for tpot in numbers(samples, lambda answer: answer.tpot_s)],
        ),
        ("ITL", "ms", all_gaps_ms),
    ):
        columns = (
            *factors,
            "values",
            f"median ({unit})",
            f"P95 ({unit})",
            f"P99 ({unit})",
            f"largest ({unit})",
        )
        rows = tuple((*starts[cell], *_tail(summarise(values(samples)))) for cell, samples in cells.items())
        tables.append(Table(f"cells-{name.lower()}", f"{name} of every cell.", columns, rows))
    columns = (
        *factors,
        "queries (tokens)",
        "hits (tokens)",
        "expected (tokens)",
        "input (tokens/s)",
        "output (tokens/s)",
    )
    rows = tuple((*starts[cell], *_counts(samples)) for cell, samples in cells.items())
    tables.append(Table("cells-tokens", "Prefix counters and throughput of every cell.", columns, rows))
    return Section("Every cell", "Cells that failed are listed with how often.", (), tuple(tables))


def _tail(summary: Summary | None) -> tuple[Value, ...]:
    if summary is None:
        return (0, None, None, None, None)
    return (summary.count, summary.median, summary.p95, summary.p99, summary.largest)


def _counts(samples: Sequence[Sample]) -> tuple[Value, ...]:
    if not samples:
        return (None,) * 5
    busy_s = sum(sample.answer.end_s for sample in samples)
    queries = [sample["counted"]["queries"] for sample in samples if sample["counted"]]
    hits = [sample.hit_tokens for sample in samples if sample.hit_tokens is not None]
    return (
        spread(queries),
        spread(hits),
        spread([sample["expected_tokens"] for sample in samples]),
        sum(sample.answer.prompt_tokens for sample in samples) / busy_s,
        sum(sample.answer.completion_tokens for sample in samples) / busy_s,
    )


def _cell_name(cell: dict[str, Any]) -> str:
    return (
        f"prefix {cell['prefix_len']:,}, caching {cell['caching']}, interference {cell['interference']}, "
        f"output {cell['output_len']:,}"
    )
