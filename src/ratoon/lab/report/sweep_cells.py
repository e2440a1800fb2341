"""The cells of a sweep, and its pairs: caching off and on, asked the same prompt in the same round."""

from collections.abc import Callable, Sequence

from ratoon.lab.answer import Answer
from ratoon.lab.report.samples import Sample, good_samples
from ratoon.lab.run_store import RunStore
from ratoon.lab.statistics import Estimate, median, paired_ratio

Cell = tuple[int, str, str, int]
"""Prefix length, caching, interference, output length."""

Cells = dict[Cell, list[Sample]]
"""Samples by cell; a cell that was not measured has an empty list."""


def read_cells(run: RunStore) -> Cells:
    """Return all cells that the settings ask for."""
    settings = run.manifest["settings"]
    cells: Cells = {
        (prefix_len, caching, interference, output_len): []
        for prefix_len in settings["prefix_lens"]
        for caching in ("off", "on")
        for interference in ("none", "others")
        for output_len in settings["output_lens"]
    }
    for sample in good_samples(run.rows):
        cells[tuple(sample["cell"].values())].append(sample)  # type: ignore[index]  # written in this order
    return cells


def pairs(cells: Cells, choose: Callable[[Cell], bool]) -> list[tuple[Sample, Sample]]:
    """Return caching off and on of the same prompt in the same round, over the chosen cells."""
    found = []
    for (prefix_len, caching, interference, output_len), samples in cells.items():
        if caching == "off" and choose((prefix_len, caching, interference, output_len)):
            on = {sample["repetition"]: sample for sample in cells[prefix_len, "on", interference, output_len]}
            found += [(off, on[off["repetition"]]) for off in samples if off["repetition"] in on]
    return found


def ratio(found: Sequence[tuple[Sample, Sample]], clock: Callable[[Answer], float]) -> Estimate | None:
    """Return on / off of a clock, None without pairs."""
    if not found:
        return None
    return paired_ratio([clock(off.answer) for off, _ in found], [clock(on.answer) for _, on in found])


def median_gap_s(answer: Answer) -> float:
    """Return the median gap of one answer."""
    return median(answer.itl_s).value
