"""The drawings of a sweep."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ratoon.lab.report import drawing
from ratoon.lab.report.drawing import BLUE, GREY, ORANGE
from ratoon.lab.report.report import MINUS, Plot, write_number
from ratoon.lab.report.samples import Sample
from ratoon.lab.report.sweep_cells import Cell, Cells, e2e_s, median_gap_s, pairs, ratio
from ratoon.lab.statistics import median

SERIES = (("off", GREY, "o", "caching off"), ("on", BLUE, "s", "caching on"))
INTERFERENCE = (("none", "Prefix still cached"), ("others", "Other prefixes in between"))


def ttft(cells: Cells, prefix_lens: Sequence[int]) -> Plot:
    """Draw TTFT over prefix length, off and on, without and with interference."""
    with drawing.style():
        figure, grid = drawing.panels(2, share_y=True)
        for axes, (interference, title) in zip(grid, INTERFERENCE, strict=True):
            for side, (caching, colour, marker, label) in enumerate(SERIES):
                points = [
                    (prefix_len, [1e3 * sample.answer.ttft_s for sample in samples])
                    for prefix_len in prefix_lens
                    if (samples := _samples(cells, prefix_len, caching, interference))
                ]
                for prefix_len, values in points:
                    place = prefix_len * (1.06 if side else 0.94)
                    axes.plot([place] * len(values), values, marker, color=colour, ms=3.5, alpha=0.35)
                axes.plot(
                    [prefix_len * (1.06 if side else 0.94) for prefix_len, _ in points],
                    [median(values).value for _, values in points],
                    f"-{marker}", color=colour, ms=7, lw=1.4, label=label,
                )  # fmt: skip
            drawing.plain_log(axes, "x")
            drawing.plain_log(axes, "y")
            axes.set_xticks(list(prefix_lens))
            axes.set_xlabel("common prefix (tokens)")
            axes.set_title(title)
        grid[0].set_ylabel("TTFT (ms)")
        grid[0].legend(loc="upper left")
        return Plot(
            drawing.svg(figure, "sweep-ttft"),
            "Large marks: medians over all output lengths; small marks: single requests. Both axes are "
            "logarithmic.",
        )


def e2e(cells: Cells, prefix_lens: Sequence[int], output_lens: Sequence[int]) -> Plot:
    """Draw E2E by output length as TTFT plus the rest, off beside on, and what the hit saves."""
    with drawing.style():
        figure, grid = drawing.panels(len(prefix_lens), share_y=True, height=3.5)
        for axes, prefix_len in zip(grid, prefix_lens, strict=True):
            for place, output_len in enumerate(output_lens):
                tops = [
                    _stack(axes, place + shift, cells[Cell(prefix_len, caching, "none", output_len)], colour)
                    for shift, (caching, colour, _, _) in zip((-0.2, 0.2), SERIES, strict=True)
                ]
                change = ratio(
                    pairs(cells, prefix_len=prefix_len, interference="none", output_len=output_len), e2e_s
                )
                if change is not None:
                    text = f"{100 * (change.value - 1):+.0f} %".replace("-", MINUS)
                    axes.annotate(
                        text if change.excludes(1) else f"({text})",
                        (place, max(tops)), (0, 4), textcoords="offset points", ha="center", fontsize=9,
                    )  # fmt: skip
            axes.set_xticks(range(len(output_lens)), [f"{length:,}" for length in output_lens])
            axes.set_xlabel("output (tokens)")
            axes.set_title(f"Prefix of {prefix_len:,} tokens")
            axes.grid(visible=False, axis="x")
        grid[0].set_ylabel("median E2E (s)")
        grid[0].set_ylim(0, 1.12 * grid[0].get_ylim()[1])
        grid[0].legend(
            handles=[
                Patch(facecolor=GREY, edgecolor="white", hatch="//", label="off: until first token"),
                Patch(facecolor=BLUE, edgecolor="white", hatch="//", label="on: until first token"),
                Patch(facecolor=GREY, alpha=0.35, label="off: the other tokens"),
                Patch(facecolor=BLUE, alpha=0.35, label="on: the other tokens"),
            ],
            loc="upper left",
            fontsize=8.5,
        )
        return Plot(
            drawing.svg(figure, "sweep-e2e"),
            "Bars: medians of TTFT (hatched) and of the time after it. Above: how caching changes E2E, in "
            "brackets where the samples do not resolve it.",
        )


def itl(cells: Cells, prefix_lens: Sequence[int]) -> Plot:
    """Draw the median gap of every answer, per prefix length and condition."""
    conditions = (
        ("off", "none", GREY, "o", "off"),
        ("on", "none", BLUE, "s", "on"),
        ("on", "others", ORANGE, "^", "on, evicted"),
    )
    with drawing.style():
        figure, grid = drawing.panels(len(prefix_lens), share_y=True, height=2.8)
        for axes, prefix_len in zip(grid, prefix_lens, strict=True):
            for place, (caching, interference, colour, marker, _) in enumerate(conditions):
                values = [
                    1e3 * median_gap_s(sample.answer)
                    for sample in _samples(cells, prefix_len, caching, interference)
                    if sample.answer.itl_s
                ]
                places = [place + 0.24 * ((index % 5) - 2) / 2 for index in range(len(values))]
                axes.plot(places, values, marker, color=colour, ms=4.5, alpha=0.6)
                if values:
                    middle = median(values).value
                    axes.hlines(middle, place - 0.38, place + 0.38, color="black", lw=1.4)
                    axes.annotate(
                        f"{write_number(middle)}", (place + 0.4, middle), (1, 3), textcoords="offset points",
                        ha="right", fontsize=8.5,
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
                    )  # fmt: skip
            axes.set_xticks(range(len(conditions)), [condition[-1] for condition in conditions])
            axes.set_xlim(-0.6, len(conditions) - 0.4)
            axes.set_title(f"Prefix of {prefix_len:,} tokens")
            axes.grid(visible=False, axis="x")
        grid[0].set_ylim(0, 1.15 * max(1e-9, grid[0].get_ylim()[1]))
        grid[0].set_ylabel("median ITL of an answer (ms)")
        return Plot(
            drawing.svg(figure, "sweep-itl"),
            "One mark per answer of more than one token; lines: medians, written beside.",
        )


def _samples(cells: Cells, prefix_len: int, caching: str, interference: str) -> list[Sample]:
    return [
        sample
        for cell, samples in cells.items()
        if cell[:3] == (prefix_len, caching, interference)
        for sample in samples
    ]


def _stack(axes: Axes, place: float, samples: Sequence[Sample], colour: str) -> float:
    """Draw one bar of two parts and return its top."""
    if not samples:
        return 0.0
    first = median([sample.answer.ttft_s for sample in samples]).value
    rest = median([sample.answer.end_s - sample.answer.ttft_s for sample in samples]).value
    axes.bar(place, first, 0.36, color=colour, edgecolor="white", hatch="//")
    axes.bar(place, rest, 0.36, bottom=first, color=colour, alpha=0.35)
    return first + rest
