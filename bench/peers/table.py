"""The comparison as a Markdown table: medians, their range, and Ratoon's ratio to the best peer."""

import statistics

from comparison import Comparison
from peers import PEERS
from work import WORK, Row

OURS = "ratoon"


def table(comparison: Comparison) -> str:
    """Return it. The last column is the median, and the range, of the ratios of figures of one round."""
    names = [spec.name for spec in PEERS if spec.name in comparison.peers]
    lines = ["| work | " + " | ".join(names) + " | ratoon : best peer |", "|---" * (len(names) + 2) + "|"]
    for work in WORK:
        for row in work.rows:
            cells = [_cell(comparison, work.name, row, name) for name in names]
            if any(cells):
                lines.append(f"| {row.name} | {' | '.join(cells)} | {_ratio(comparison, row)} |")
    lines += [f"\n{name} did not run: {reason}" for name, reason in comparison.not_run.items()]
    return "\n".join(lines)


def _cell(comparison: Comparison, work: str, row: Row, peer: str) -> str:
    values = list(comparison.figures(row.name, peer).values())
    why_not = comparison.without_figures(work, peer)
    if values:
        middle, low, high = (_three_digits(f(values)) for f in (statistics.median, min, max))
        return f"{middle} ({low}-{high})"
    if why_not is None:
        return ""
    return f"over {why_not['over_s']:g} s" if "over_s" in why_not else f"failed: {why_not['error'][:40]}"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".removesuffix(".")


def _ratio(comparison: Comparison, row: Row) -> str:
    ours = comparison.figures(row.name, OURS)
    best = None
    for name in comparison.peers:
        theirs = comparison.figures(row.name, name)
        rounds = ours.keys() & theirs.keys()
        if name == OURS or not rounds:
            continue
        typical = statistics.median(theirs.values())
        if best is None or (typical > best[0]) == row.more_is_better:
            best = typical, name, [ours[number] / theirs[number] for number in rounds]
    if best is None:
        return ""
    _, name, ratios = best
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) to {name}"
