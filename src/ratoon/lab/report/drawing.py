"""Drawing: one look for all plots, and SVG that a page can hold.

Colours are Okabe and Ito's, told apart with any colour vision; every series also has its own marker or hatch,
so a black-and-white print says the same. Text stays text: it can be selected and read aloud. `matplotlib` is
told everything on its objects and in a context; nothing global is changed.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"
MARKERS = ("o", "s", "^", "D", "v")
HATCHES = ("", "//", "..", "xx")

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "ratoon",
    "figure.facecolor": "white",
    "hatch.linewidth": 0.6,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the house style within this context."""
    with mpl.rc_context(_STYLE):
        yield


def panels(columns: int, *, height: float = 3.2, share_y: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure of the page's width with panels side by side; height in inches."""
    return grid(1, columns, height=height, share_y=share_y)


def grid(
    rows: int, columns: int, *, height: float, share_x: bool = False, share_y: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure of the page's width with rows of panels, row after row; height in inches."""
    figure = Figure(figsize=(9.2, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, sharex=share_x, sharey=share_y, squeeze=False).flat)


def svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element. `name` makes its ids its own among the drawings of a page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    text = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', text)
    return re.sub(r'(href="|url\()#', rf"\1#{name}-", text)


def plain_log(axes: Axes, which: str) -> None:
    """Make an axis (`x` or `y`) logarithmic, with plain numbers on it. To be called when all is plotted."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(FuncFormatter(lambda *_: ""))
