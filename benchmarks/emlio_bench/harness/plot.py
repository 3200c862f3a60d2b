"""Pictures: one figure of matplotlib for a benchmark, in one style."""

import zlib
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from math import log10
from typing import Any, Final

from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import Spread, number

__all__ = [
    "BOUND",
    "GRID",
    "INK",
    "MUTED",
    "OURS",
    "bar_panels",
    "blank_figure",
    "colour",
    "draw_bars",
    "dress",
    "plain_logarithms",
    "png_bytes",
    "stamp",
]

INK: Final = "#333333"
MUTED: Final = "#767676"
GRID: Final = "#e4e4e4"
OURS: Final = "#1f6fa8"
BOUND: Final = "#c0392b"
_FONT: Final = 8.5

_COLOURS: Final = {
    "emlio": "#1f77c4",
    "emlio-local": "#7cb3d9",
    "emlio-streams-1": "#123f63",
    "emlio-streams-2": "#4a9fd8",
    "paper": "#9aa3b0",
    "dali-file": "#d0743c",
    "dali-tfrecord": "#e0a458",
    "pytorch-files": "#b0566b",
    "litdata": "#8f79b8",
    "mosaic": "#3f9b68",
    "mosaic-stratified": "#c2703d",
    "webdataset": "#b3912a",
}
_OTHERS: Final = ("#5aa9a0", "#a8785a", "#7a9e3f", "#c77fa5", "#6b7fa8", "#94714f")
_FEW_DECADES: Final = 2.6


def colour(subject: str) -> str:
    """Return the colour of a subject, the same in all pictures."""
    return _COLOURS.get(subject) or _OTHERS[zlib.crc32(subject.encode()) % len(_OTHERS)]


def blank_figure(width: float, height: float, *, title: str = "", rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes, of a size in inches; several axes come as an array."""
    figure = import_module("matplotlib.figure").Figure(figsize=(width, height), dpi=150, layout="constrained")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=_FONT + 2, color=INK, fontweight="bold")
    return figure, figure.subplots(rows, columns)


def dress(axes: Any, *, grid: str = "y", size: float = _FONT) -> None:
    """Give axes their style; call it when the scales are set."""
    axes.tick_params(axis="both", which="both", length=0, labelsize=size, colors=INK)
    for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
        axis.label.set(fontsize=size, color=INK)
        if scale == "log":
            plain_logarithms(axis)
    axes.grid(axis=grid, color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)


def plain_logarithms(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers."""
    ticker: Any = import_module("matplotlib.ticker")
    low, high = axis.get_view_interval()
    subs = (1, 2, 5) if log10(high / low) <= _FEW_DECADES else (1,)
    axis.set_major_locator(ticker.LogLocator(base=10, subs=subs, numticks=30))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(_plain))


def _plain(value: float, _: int) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def draw_bars(axes: Any, bars: Sequence[tuple[str, str, Spread]], axis: str, *, logarithmic: bool = False) -> None:
    """Draw horizontal bars, one below the other: label, subject, spread. A triangle marks a bound.

    A logarithmic axis has dots in place of bars, whose lengths would say nothing.
    """
    if logarithmic:
        axes.set_xscale("log")
    axes.set_ylim(len(bars) - 0.5, -0.5)
    for place, (_, subject, of) in enumerate(bars):
        if logarithmic:
            axes.plot([of.median], [place], "o", markersize=5, color=colour(subject), zorder=2)
        else:
            axes.barh(place, of.median, 0.6, color=colour(subject), zorder=2)
        said = (f"{of.sign} {number(of.median)}".strip(), (max(of.most, of.median), place), (5, 0))
        axes.annotate(*said, textcoords="offset points", va="center", fontsize=_FONT - 1.5, color=INK, zorder=5)
        if of.bound:
            axes.plot([of.median], [place], ">", markersize=5, markerfacecolor="none", color=INK, zorder=4)
        elif of.most > of.least:
            axes.hlines(place, of.least, of.most, color=INK, linewidth=1.0, alpha=0.75, zorder=3)
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    axes.set_xlabel(f"{axis}, logarithmic axis" if logarithmic else axis)
    axes.margins(x=0.1)
    if not logarithmic:
        axes.set_xlim(left=0)
    dress(axes, grid="x")


def bar_panels(
    results: Results,
    panels: Sequence[tuple[str, str, Sequence[tuple[str, str, Spread]]]],
    title: str = "",
    *,
    logarithmic: bool = False,
    most: float | None = None,
) -> Any:
    """Return a figure with bars in each panel, as `draw_bars` has them; None without panels.

    Args:
        results: their results, which are named below.
        panels: title, quantity and bars of each panel.
        title: title of the figure.
        logarithmic: whether the axis of the quantity is.
        most: the end of each panel's axis, which then compare; by default each shows its own.
    """
    if not panels:
        return None
    height = sum(0.9 + 0.26 * len(bars) for _, _, bars in panels)
    figure, axes = blank_figure(8.6, height, title=title, rows=len(panels))
    for panel, (name, quantity, bars) in zip(axes.flat if len(panels) > 1 else [axes], panels, strict=True):
        draw_bars(panel, bars, quantity, logarithmic=logarithmic)
        if most is not None:
            panel.set_xlim(right=most)
        panel.set_title(name, loc="left", fontsize=9)
    stamp(figure, results)
    return figure


def stamp(figure: Any, results: Results, *, before: str = "") -> None:
    """Write machine and commit below a figure."""
    world = results.environment
    words = (
        f"{before}{world.cpu or 'unknown processor'}",
        f"{world.cores} cores",
        f"emlio {world.commit or world.emlio}",
    )
    figure.text(0.99, -0.01, ", ".join(words), ha="right", va="top", fontsize=6.5, color=MUTED)


def png_bytes(figure: Any) -> bytes:
    """Return the figure as PNG."""
    written = BytesIO()
    figure.savefig(written, format="png", bbox_inches="tight")
    return written.getvalue()
