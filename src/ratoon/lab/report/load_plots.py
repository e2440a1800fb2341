"""The drawings of bursts and replays."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ratoon.lab.report import drawing
from ratoon.lab.report.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE
from ratoon.lab.report.measured_workload import MeasuredWorkload
from ratoon.lab.report.report import Plot

FATES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("cached", "cached", {"color": BLUE, "edgecolor": "white"}),
    ("not_yet", "not there yet", {"color": PURPLE, "edgecolor": "white", "hatch": ".."}),
    ("evicted", "evicted, then missed", {"color": ORANGE, "edgecolor": "white", "hatch": "xx"}),
    ("new", "new: nobody had asked it", {"color": "#dddddd", "edgecolor": GREY, "hatch": "//"}),
)
"""Field, label, and look."""


def fates(workloads: Sequence[MeasuredWorkload]) -> Plot:
    """Draw where the prompt tokens of each workload came from, and the ideal."""
    with drawing.style():
        figure, (axes,) = drawing.panels(1, height=1.5 + 0.45 * len(workloads))
        for place, measured in enumerate(workloads):
            left = 0
            for name, _, look in FATES:
                width = measured.total(name)
                axes.barh(place, width, 0.6, left=left, **look)
                left += width
            axes.plot([measured.total("ideal")] * 2, [place - 0.42, place + 0.42], color="black", lw=2.2)
        for _, label, look in FATES:
            axes.barh(0, 0, label=label, **look)
        axes.plot([], [], color="black", lw=2.2, label="ideal hit")
        axes.set_yticks(range(len(workloads)), [measured.name for measured in workloads])
        axes.set_ylim(len(workloads) - 0.5, -0.5)
        axes.set_xlabel("prompt tokens")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(visible=False, axis="y")
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=5, fontsize=8.5, columnspacing=1.2)
        return Plot(
            drawing.svg(figure, "fates"), "The black line marks what an infinite cache would have hit."
        )


def ttft(workloads: Sequence[MeasuredWorkload]) -> Plot:
    """Draw the distribution of TTFT, cold and warm, of each workload."""
    with drawing.style():
        columns = min(3, len(workloads))
        rows = -(-len(workloads) // columns)
        figure, grid = drawing.grid(rows, columns, height=2.4 * rows + 0.2, share_x=True)
        for axes, measured in zip(grid, workloads, strict=False):
            for warm, colour, style, label in ((False, GREY, "--", "cold"), (True, BLUE, "-", "warm")):
                values = sorted(measured.ttft_s(warm=warm))
                if values:
                    axes.step(
                        [values[0], *values], np.linspace(0, 100, len(values) + 1), style, where="post",
                        color=colour, lw=1.8, label=f"{label} (n = {len(values)})",
                    )  # fmt: skip
            axes.set_title(measured.name)
            axes.set_xlabel("TTFT (s)")
            axes.xaxis.set_tick_params(labelbottom=True)
            axes.set_ylim(0, 104)
            axes.legend(loc="best", fontsize=8.5)
        drawing.plain_log(grid[0], "x")
        for axes in grid[len(workloads) :]:
            axes.set_visible(False)
        for axes in grid[::columns]:
            axes.set_ylabel("requests (%)")
        return Plot(
            drawing.svg(figure, "load-ttft"),
            "Share of requests whose first token came within a time. The time axis is logarithmic.",
        )


def timeline(measured: MeasuredWorkload) -> Plot:
    """Draw prompt tokens, ideal and measured hits as they add up, and TTFT, over the time of sending."""
    with drawing.style():
        figure, (tokens, latency) = drawing.panels(2)
        start = measured.fates[0].sample.answer.sent_at_s
        times = [fate.sample.answer.sent_at_s - start for fate in measured.fates]
        for values, colour, style, label in (
            ([fate.sample.answer.prompt_tokens for fate in measured.fates], GREY, ":", "prompt"),
            ([fate.ideal for fate in measured.fates], GREEN, "--", "ideal hits"),
            ([fate.cached for fate in measured.fates], BLUE, "-", "measured hits"),
        ):
            tokens.step(
                times, list(accumulate(values)), style, where="post", color=colour, lw=1.8, label=label
            )
        tokens.set_title("Tokens, added up")
        tokens.set_ylabel("tokens")
        tokens.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        tokens.legend(loc="upper left")
        for warm, colour, marker, label in ((False, GREY, "o", "cold"), (True, BLUE, "s", "warm")):
            points = [
                (time, fate.sample.answer.ttft_s)
                for time, fate in zip(times, measured.fates, strict=True)
                if fate.warm == warm
            ]
            if points:
                latency.plot(*zip(*points, strict=True), marker, color=colour, ms=4, alpha=0.7, label=label)
        latency.set_title("TTFT")
        latency.set_ylabel("TTFT (s)")
        latency.set_ylim(0, 1.2 * latency.get_ylim()[1])
        latency.legend(loc="upper right", ncols=2)
        for axes in (tokens, latency):
            axes.set_xlabel("sent after (s)")
        return Plot(
            drawing.svg(figure, "timeline"),
            "Left: sums over all requests sent so far. Right: one mark per request.",
        )
