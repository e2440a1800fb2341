"""A report as lines in a terminal: findings, failures and the main tables."""

import textwrap

from ratoon.lab.report.report import Report, Table, write_value

WIDTH = 100


def summary(report: Report) -> str:
    """Return the lines."""
    lines = [report.title, "=" * len(report.title)]
    lines += [line for finding in report.findings for line in _item(finding, "•")]
    if report.failures:
        lines += ["", "Failed:", *(line for failure in report.failures for line in _item(failure, "✗"))]
    for table in report.tables:
        if table.main and table.rows:
            lines += ["", table.caption, *table_lines(table)]
    return "\n".join(lines)


def table_lines(table: Table) -> list[str]:
    """Return a table in columns; a long last column (the reasons) is left to the page."""
    grid = [list(table.columns), *([write_value(value) for value in row] for row in table.rows)]
    if max(len(row[-1]) for row in grid) > WIDTH // 2:
        grid = [row[:-1] for row in grid]
    widths = [max(len(row[index]) for row in grid) for index in range(len(grid[0]))]
    lines = [
        "  ".join(
            _pad(cell, width, index) for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in grid
    ]
    return [lines[0].rstrip(), "-" * len(lines[0]), *(line.rstrip() for line in lines[1:])]


def _pad(cell: str, width: int, index: int) -> str:
    return cell.ljust(width) if index == 0 else cell.rjust(width)


def _item(text: str, mark: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{mark} ", subsequent_indent="  ")
