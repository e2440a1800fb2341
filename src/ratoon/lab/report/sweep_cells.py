"""The cells of a sweep, and its pairs: caching off and on, asked the same prompt in the same round."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from ratoon.lab.answer import Answer
from ratoon.lab.report.samples import Sample, good_samples
from ratoon.lab.run_store import RunStore
from ratoon.lab.statistics import Estimate, median, paired_ratio


class Cell(NamedTuple):
    """One combination of the factors."""

    prefix_len: int
    caching: str
    interference: str
    output_len: int


Cells = dict[Cell, list[Sample]]
"""Samples by cell; a cell that was not measured has an empty list."""


Pairs = list[tuple[Sample, Sample]]
"""Caching off and on of the same prompt in the same round."""


def read_cells(run: RunStore) -> Cells:
    """Return all cells that the settings ask for."""
    settings = run.manifest["settings"]
    factors = settings["prefix_lens"], ("off", "on"), ("none", "others"), settings["output_lens"]
    cells: Cells = {Cell(*combination): [] for combination in itertools.product(*factors)}
    for sample in good_samples(run.rows):
        cells[Cell(**sample["cell"])].append(sample)
    return cells


def pairs(
    cells: Cells,
    *,
    interference: str | None = None,
    prefix_len: int | None = None,
    output_len: int | None = None,
) -> Pairs:
    """Return the pairs of the cells with these factors; None stands for any."""
    found: Pairs = []
    for cell, samples in cells.items():
        if (
            cell.caching == "off"
            and interference in (None, cell.interference)
            and prefix_len in (None, cell.prefix_len)
            and output_len in (None, cell.output_len)
        ):
            on = {sample["repetition"]: sample for sample in cells[cell._replace(caching="on")]}
            found += [(off, on[off["repetition"]]) for off in samples if off["repetition"] in on]
    return found


def medians(found: Pairs, clock: Callable[[Answer], float]) -> tuple[Estimate | None, Estimate | None]:
    """Return the medians of a clock with caching off and on."""
    if not found:
        return (None, None)
    off, on = (median([clock(sample.answer) for sample in side]) for side in zip(*found, strict=True))
    return (off, on)


def ratio(found: Pairs, clock: Callable[[Answer], float]) -> Estimate | None:
    """Return on / off of a clock, None without pairs."""
    if not found:
        return None
    return paired_ratio([clock(off.answer) for off, _ in found], [clock(on.answer) for _, on in found])


def ttft_s(answer: Answer) -> float:
    """Return the time to first token, as a clock."""
    return answer.ttft_s


def e2e_s(answer: Answer) -> float:
    """Return the time to the end, as a clock."""
    return answer.end_s


def median_gap_s(answer: Answer) -> float:
    """Return the median gap between the tokens of one answer, as a clock."""
    return median(answer.itl_s).value
