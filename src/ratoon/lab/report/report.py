"""`Report`: what there is to show, before it becomes a page, a file or lines in a terminal.

Table cells hold raw values; how they are written is decided once, in `write_value` for people and in
`columns` and `plain_row` for CSV and JSON.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ratoon.lab.statistics import Estimate

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"

Value = str | int | float | Estimate | None
"""A table cell. None: it cannot be told, for want of samples or because the server does not tell."""


@dataclass(frozen=True, slots=True)
class Table:
    """Named columns with their units in the title, and rows of raw values.

    `main` ones go to the terminal too.
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    main: bool = False

    def plain_columns(self) -> tuple[str, ...]:
        """Return the titles with an estimate's bounds in columns of their own."""
        titles: list[str] = []
        for index, title in enumerate(self.columns):
            titles.append(title)
            if self._holds_estimates(index):
                titles += [f"{title} low", f"{title} high"]
        return tuple(titles)

    def plain_rows(self) -> list[list[str | int | float | None]]:
        """Return the rows in the shape of `plain_columns`."""
        rows: list[list[str | int | float | None]] = []
        for row in self.rows:
            cells: list[str | int | float | None] = []
            for index, value in enumerate(row):
                if isinstance(value, Estimate):
                    cells += [value.value, value.low, value.high]
                else:
                    cells += [value, None, None] if self._holds_estimates(index) else [value]
            rows.append(cells)
        return rows

    def _holds_estimates(self, index: int) -> bool:
        return any(isinstance(row[index], Estimate) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing as SVG text, and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    title: str
    text: str = ""
    plots: tuple[Plot, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A title, what may be concluded, what failed, and the evidence."""

    title: str
    question: str
    findings: tuple[str, ...]
    sections: tuple[Section, ...]
    failures: tuple[str, ...] = ()
    statistics: tuple[str, ...] = field(default=())
    """How to read the numbers of this experiment."""

    @property
    def tables(self) -> list[Table]:
        """All tables in order."""
        return [table for section in self.sections for table in section.tables]


def write_value(value: Value) -> str:
    """Return a cell as people read it: three significant digits, an estimate with its interval."""
    if value is None:
        return DASH
    if isinstance(value, Estimate):
        middle = write_number(value.value)
        if value.low is None or value.high is None:
            return f"{middle} (n = {value.count})"
        return f"{middle} [{write_number(value.low)}, {write_number(value.high)}]"
    return value if isinstance(value, str) else write_number(value)


def write_number(value: float) -> str:
    """Return integers whole, others with three significant digits and never in powers of ten."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}".replace("-", MINUS)


def write_estimate(estimate: Estimate, unit: str, scale: float = 1.0) -> str:
    """Return an estimate in a sentence: `1.20 s (95 % interval 1.10 to 1.30, n = 10)`."""
    text = f"{write_number(estimate.value * scale)} {unit}"
    if estimate.low is None or estimate.high is None:
        return f"{text} (n = {estimate.count}, too few for an interval)"
    low, high = map(write_number, sorted((estimate.low * scale, estimate.high * scale)))
    return f"{text} (95 % interval {low} to {high}, n = {estimate.count})"


def share(part: float, whole: float) -> float | None:
    """Return a percentage, None of nothing."""
    return 100 * part / whole if whole else None


def join_reasons(reasons: Sequence[str]) -> tuple[str, ...]:
    """Return each reason once, with how often it came."""
    return tuple(
        f"{reason} ({count} times)" if (count := list(reasons).count(reason)) > 1 else reason
        for reason in dict.fromkeys(reasons)
    )
