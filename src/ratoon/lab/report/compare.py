"""Two runs of the same experiment side by side: B / A of every clock in every cell, with its spread.

Only like runs are compared: the same experiment, settings and model. What else differs (machine, versions,
server) is what the comparison is about, and is printed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ratoon.errors import LabError
from ratoon.lab.answer import Answer
from ratoon.lab.report import drawing
from ratoon.lab.report.drawing import BLUE, GREY
from ratoon.lab.report.report import DASH, Plot, Report, Section, Table, Value
from ratoon.lab.report.samples import Sample, good_samples, numbers
from ratoon.lab.run_store import RunStore
from ratoon.lab.statistics import Estimate, median, ratio_of_medians

CLOCKS: dict[str, Callable[[Answer], float | None]] = {
    "TTFT": lambda answer: answer.ttft_s,
    "ITL": lambda answer: median(answer.itl_s).value if answer.itl_s else None,
    "E2E": lambda answer: answer.end_s,
}

MAY_DIFFER = ("seed", "repetitions", "max_seconds", "trace")
"""Settings that may differ: another seed gives other prompts of the same shape, other counts samples of other
sizes, and a trace is known by its digest.
"""

MUST_MATCH = ("model digest", "block size")
"""Facts of `manifest["server"]` that must be equal, where both runs know them."""

STATISTICS = (
    "Ratio: median of B over median of A. Its 95 % interval is a bootstrap over both samples; it takes 6 "
    "values on each side.",
    "A ratio whose interval holds 1 is no difference that these samples resolve. Among many cells, one "
    "in twenty intervals misses its truth by chance.",
)

Cell = tuple[tuple[str, Any], ...]
"""Factors and their levels."""


class Comparison(NamedTuple):
    """One clock in one cell; times in seconds."""

    cell: str
    clock: str
    count_a: int
    count_b: int
    median_a_s: float
    median_b_s: float
    ratio: Estimate
    """B / A."""


def compare(a: RunStore, b: RunStore) -> Report:
    """Return the comparison. Raises `LabError` for runs that are not alike, naming what differs."""
    if unlike := _unlike(a.manifest, b.manifest):
        raise LabError(
            f"These runs are not alike: {'; '.join(unlike)}.", hint="Repeat one with the other's command."
        )
    compared = _compared(a, b)
    if not compared:
        raise LabError("No cell was measured in both runs.")
    resolved = [row for row in compared if row.ratio.excludes(1)]
    faster = sum(row.ratio.value < 1 for row in resolved)
    differs = _differences(a.manifest, b.manifest)
    return Report(
        f"{a.manifest['experiment'].capitalize()}: B against A",
        "The same experiment twice: what differs?",
        (
            f"Of {len(compared)} ratios, B is faster in {faster}, slower in {len(resolved) - faster}, and "
            f"in {len(compared) - len(resolved)} the samples resolve no difference.",
            f"Conditions that differ: {', '.join(differs) if differs else 'none that were noted'}.",
        ),
        (
            Section("Ratios", "", (_plot(compared),), (_table(compared),)),
            Section("What differs", "", (), (_differences_table(a.manifest, b.manifest),)),
        ),
        (),
        STATISTICS,
    )


def _unlike(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    unlike = []
    if a["experiment"] != b["experiment"]:
        return [f"experiment {a['experiment']} and {b['experiment']}"]
    for name in a["settings"].keys() | b["settings"].keys():
        left, right = a["settings"].get(name), b["settings"].get(name)
        if left != right and name not in MAY_DIFFER:
            unlike.append(f"{name} {left} and {right}")
    for name in MUST_MATCH:
        left, right = a["server"].get(name), b["server"].get(name)
        if left != right and left is not None and right is not None:
            unlike.append(f"{name} {left} and {right}")
    return sorted(unlike)


def _compared(a: RunStore, b: RunStore) -> list[Comparison]:
    left, right = _cells(a), _cells(b)
    rows: list[Comparison] = []
    for cell in sorted(left):
        for name, clock in CLOCKS.items():
            of_a, of_b = (numbers(side.get(cell, ()), clock) for side in (left, right))
            if of_a and of_b:
                middles = median(of_a).value, median(of_b).value
                ratio = ratio_of_medians(of_a, of_b)
                rows.append(Comparison(_name(cell), name, len(of_a), len(of_b), *middles, ratio))
    return rows


def _cells(run: RunStore) -> dict[Cell, list[Sample]]:
    cells: dict[Cell, list[Sample]] = {}
    for sample in good_samples(row for row in run.rows if row.get("answer") is not None):
        cell = {name.removesuffix("_len"): value for name, value in sample["cell"].items()}
        if run.manifest["experiment"] == "counterexamples":
            cell["request"] = sample["role"]
        cells.setdefault(tuple(cell.items()), []).append(sample)
    return cells


def _name(cell: Cell) -> str:
    return ", ".join(f"{factor} {level}" for factor, level in cell)


def _differences(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[str, str]]:
    found = {}
    for part in ("machine", "versions", "server", "settings"):
        for name in sorted(a[part].keys() | b[part].keys()):
            left, right = str(a[part].get(name, DASH)), str(b[part].get(name, DASH))
            if left != right:
                found[name] = (left, right)
    return found


def _differences_table(a: dict[str, Any], b: dict[str, Any]) -> Table:
    rows = (
        ("started", a["started"], b["started"]),
        *((name, *sides) for name, sides in _differences(a, b).items()),
    )
    return Table("conditions", "Conditions that are not equal.", ("condition", "A", "B"), rows)


def _table(compared: list[Comparison]) -> Table:
    columns = ("cell", "clock", "n of A", "n of B", "median of A (s)", "median of B (s)", "B / A")
    rows: tuple[tuple[Value, ...], ...] = tuple(compared)
    return Table("compare", "Every cell and clock measured in both runs.", columns, rows, main=True)


def _plot(compared: list[Comparison]) -> Plot:
    with drawing.style():
        cells = list(dict.fromkeys(row.cell for row in compared))
        figure, grid = drawing.panels(len(CLOCKS), height=1.1 + 0.24 * len(cells), share_y=True)
        for axes, clock in zip(grid, CLOCKS, strict=True):
            for cell, name, *_, ratio in compared:
                if name != clock:
                    continue
                colour = BLUE if ratio.excludes(1) else GREY
                place = cells.index(cell)
                if ratio.low is not None and ratio.high is not None:
                    axes.hlines(place, ratio.low, ratio.high, color=colour, lw=1.6)
                axes.plot(ratio.value, place, "s" if ratio.excludes(1) else "o", color=colour, ms=5)
            axes.axvline(1, color="black", lw=0.9)
            drawing.plain_log(axes, "x")
            axes.set_title(clock)
            axes.set_xlabel("B / A (ratio)")
        grid[0].set_yticks(range(len(cells)), cells, fontsize=8)
        grid[0].set_ylim(len(cells) - 0.5, -0.5)
        return Plot(
            drawing.svg(figure, "compare"),
            "Marks: ratio of medians; lines: 95 % intervals. Blue squares: the interval excludes 1. Left "
            "of the line B is faster.",
        )
