"""The report of `Sweep`: what each factor does to each latency."""

from collections.abc import Sequence
from typing import Any

from ratoon.lab.report import sweep_plots, sweep_tables
from ratoon.lab.report.report import Report, Section, write_estimate, write_number
from ratoon.lab.report.samples import failures, spread
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

STATISTICS = (
    "Medians carry their exact 95 % interval from order statistics, which takes 6 samples. P95 is given "
    "from 20 samples on, P99 from 100: with fewer they would be the largest value under another name. n "
    "says how many there were.",
    "Caching on and off are compared in pairs: the same prompt in the same round, on two servers started "
    "for it. A round visits all groups in random order, so that a change of the machine's speed meets "
    "all alike.",
    "ITL samples are all gaps of all answers in a cell; gaps of one answer are not independent of each "
    "other.",
    "Each visit starts a server, warms it up on an unrelated prompt and has the prefix computed once, "
    "unmeasured. “Others” means: other prefixes filled the pool between that and the measured request.",
)


def report(run: RunStore) -> Report:
    """Analyse a run of `Sweep`, whole or interrupted."""
    cells = read_cells(run)
    failed = failures(run.rows, _cell_name)
    question = "How do prefix length, output length, caching and interference act on each latency?"
    every_cell = Section("Every cell", "", (), sweep_tables.every_cell(run, cells))
    if not any(cells.values()):
        return Report("Sweep", question, ("No cell was measured.",), (every_cell,), failed, STATISTICS)
    settings = run.manifest["settings"]
    prefix_lens, output_lens = settings["prefix_lens"], settings["output_lens"]
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
            "A hit saves the prefill of the prefix.",
            (sweep_plots.ttft(cells, prefix_lens),),
            (sweep_tables.ttft(cells, prefix_lens),),
        ),
        Section(
            "End to end",
            "The prefill is saved once, so the longer the answer, the smaller the share that is saved.",
            (sweep_plots.e2e(cells, prefix_lens, output_lens),),
            (sweep_tables.e2e(cells),),
        ),
        Section(
            "Between tokens",
            "After the first token a hit has nothing left to save; a difference here needs another reason.",
            (sweep_plots.itl(cells, prefix_lens),),
        ),
        every_cell,
    )
    return Report("Sweep", question, tuple(findings), sections, failed, STATISTICS)


def _rounds_finding(run: RunStore, cells: Cells) -> list[str]:
    counts = [len(samples) for samples in cells.values()]
    asked = run.manifest["settings"]["repetitions"]
    if min(counts) == asked:
        return []
    return [
        f"{spread(counts)} of {asked} rounds were measured: the time set for the run was over, it was "
        "interrupted, or cells failed. It can be resumed."
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
    saved = [
        f"{write_number(100 - 100 * change.value)} %" + ("" if change.excludes(1) else " (not resolved)")
        for change in changes
        if change is not None
    ]
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
        f"Eviction: after other prefixes had filled the pool, {missed} of {len(hits)} requests found "
        f"nothing; their TTFT is {write_estimate(change, '%', 100)} of that with caching off."
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


def _cell_name(cell: dict[str, Any]) -> str:
    return (
        f"prefix {cell['prefix_len']:,}, caching {cell['caching']}, interference {cell['interference']}, "
        f"output {cell['output_len']:,}"
    )
