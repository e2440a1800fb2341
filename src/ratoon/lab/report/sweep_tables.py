"""The tables of a sweep."""

from collections.abc import Callable, Sequence

from ratoon.lab.report.report import Table, Value
from ratoon.lab.report.samples import Sample, all_gaps_ms, numbers, spread
from ratoon.lab.report.sweep_cells import Cell, Cells, e2e_s, medians, pairs, ratio, ttft_s
from ratoon.lab.run_store import RunStore
from ratoon.lab.statistics import Summary, summarise


def ttft(cells: Cells, prefix_lens: Sequence[int]) -> Table:
    """Return TTFT off and on by prefix length and interference, over all output lengths."""
    rows: list[tuple[Value, ...]] = []
    for prefix_len in prefix_lens:
        for interference in ("none", "others"):
            found = pairs(cells, prefix_len=prefix_len, interference=interference)
            rows.append((prefix_len, interference, len(found), *medians(found, ttft_s), ratio(found, ttft_s)))
    columns = ("prefix (tokens)", "interference", "pairs", "TTFT off (s)", "TTFT on (s)", "on / off")
    return Table("ttft", "TTFT with caching off and on, over all output lengths.", columns, tuple(rows), True)


def e2e(cells: Cells) -> Table:
    """Return E2E off and on by prefix and output length, without interference."""
    rows: list[tuple[Value, ...]] = []
    for cell in cells:
        if (cell.caching, cell.interference) == ("off", "none"):
            found = pairs(cells, prefix_len=cell.prefix_len, interference="none", output_len=cell.output_len)
            rows.append(
                (cell.prefix_len, cell.output_len, len(found), *medians(found, e2e_s), ratio(found, e2e_s))
            )
    columns = ("prefix (tokens)", "output (tokens)", "pairs", "E2E off (s)", "E2E on (s)", "on / off")
    return Table("e2e", "E2E with caching off and on, no interference.", columns, tuple(rows), True)


FACTORS = ("prefix (tokens)", "caching", "interference", "output (tokens)", "n", "failed")

CLOCKS: tuple[tuple[str, str, Callable[[Sequence[Sample]], list[float]]], ...] = (
    ("TTFT", "s", lambda samples: numbers(samples, lambda answer: answer.ttft_s)),
    ("E2E", "s", lambda samples: numbers(samples, lambda answer: answer.end_s)),
    ("TPOT", "ms", lambda samples: [1e3 * tpot for tpot in numbers(samples, lambda answer: answer.tpot_s)]),
    ("ITL", "ms", all_gaps_ms),
)
"""Name, unit, and the values of a cell."""


def every_cell(run: RunStore, cells: Cells) -> tuple[Table, ...]:
    """Return all clocks, counters and rates of all cells, those that failed included."""
    failed = [Cell(**row["cell"]) for row in run.rows if row.get("error") is not None]
    starts = {cell: (*cell, len(samples), failed.count(cell)) for cell, samples in cells.items()}
    tables = []
    for name, unit, values in CLOCKS:
        tail = (f"median ({unit})", f"P95 ({unit})", f"P99 ({unit})", f"largest ({unit})")
        rows = tuple((*starts[cell], *_tail(summarise(values(samples)))) for cell, samples in cells.items())
        columns = (*FACTORS, "values", *tail)
        tables.append(Table(f"cells-{name.lower()}", f"{name} of every cell.", columns, rows))
    columns = (
        *FACTORS, "queries (tokens)", "hits (tokens)", "expected (tokens)",
        "input (tokens/s)", "output (tokens/s)",
    )  # fmt: skip
    rows = tuple((*starts[cell], *_counts(samples)) for cell, samples in cells.items())
    tables.append(Table("cells-tokens", "Prefix counters and throughput of every cell.", columns, rows))
    return tuple(tables)


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
