"""Bars of a race: a row for each system at its best setting and at its defaults.

Covers: one panel of horizontal bars, wide for a desktop and narrow for a phone, bounds of cut runs.
Does not cover: the quantities that are drawn (emlio_bench.race.plots), curves
(emlio_bench.race.curves).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from emlio_bench.harness.plot import blank_figure, plain_logarithms
from emlio_bench.race.censored_range import Extent
from emlio_bench.race.palette import GRID, INK, MUTED, colour
from emlio_bench.race.standing import DEFAULT, Standing

__all__ = ["NARROW", "WIDE", "Bar", "draw_bars", "dress", "labelled", "named"]

WIDE: Final = 8.6
"""The width of a wide plot in inches."""
NARROW: Final = 3.6
"""The width of a narrow plot in inches, which a phone shows without scaling."""

_LABELS: Final = {"emlio": "EMLIO", "emlio-local": "EMLIO on one host", "paper": "the paper's way"}
_ROW: Final = 0.3
_NARROW_ROW: Final = 0.42
_FOOT: Final = 0.62
_HEAD: Final = 0.45
_SIZE: Final = 9.0
_NARROW_SIZE: Final = 8.5
_DEFAULT_ALPHA: Final = 0.5
_BESIDE_ALPHA: Final = 0.4
_BEFORE: Final = 2.2
"""The ratio of the shortest bar's end to the start of a logarithmic axis."""
_TICKS: Final = 8
_NARROW_TICKS: Final = 4
_ROOM: Final = 1.22
"""The ratio of the axis to the longest bar. The rest is room for the bar's figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row of a bar chart.

    Attributes:
        label: label of the row.
        subject: system whose colour the bar has.
        pale: whether the bar is pale, as the lesser of a system's rows.
        extent: value of the bar.
        beside: value of a thinner bar below; None for no such bar.
        said: text beside the bar.
    """

    label: str
    subject: str
    pale: bool
    extent: Extent
    beside: Extent | None
    said: str


def labelled(subject: str) -> str:
    """Return the display name of a system."""
    return _LABELS.get(subject, subject)


def named(row: Standing) -> str:
    """Return the display name of a system at one of its settings."""
    subject = labelled(row.entrant.subject)
    only = row.entrant.family == "ours" and row.entrant.setting == DEFAULT
    return subject if only else f"{subject}, {row.entrant.setting}"


def draw_bars(bars: Sequence[Bar], *, title: str, axis: str, log: bool, narrow: bool) -> Any:
    """Draw the bars, and return the matplotlib figure.

    Args:
        bars: the bars from top to bottom.
        title: title of the panel.
        axis: quantity of the bars, with its unit.
        log: whether the axis is logarithmic.
        narrow: whether to draw for a phone, with labels above the bars.
    """
    row = _NARROW_ROW if narrow else _ROW
    lines = title.count("\n")
    head = _HEAD + 0.17 * lines
    height = head + _FOOT + row * len(bars)
    figure, axes = blank_figure(NARROW if narrow else WIDE, height)
    size = _NARROW_SIZE if narrow else _SIZE
    least, most = min(bar.extent.least for bar in bars), max(_longest(bar) for bar in bars)
    if log:
        axes.set_xscale("log")
        begin = least / _BEFORE
        end = most * (most / begin) ** (0.34 if narrow else 0.16)
    else:
        begin, end = 0.0, (most or 1.0) * (1.55 if narrow else _ROOM)
    axes.set_xlim(begin, end)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    for place, bar in enumerate(bars):
        _draw(axes, place, bar, begin, narrow=narrow, size=size)
    if not log:
        axes.locator_params(axis="x", nbins=_NARROW_TICKS if narrow else _TICKS)
    axes.set_xlabel(axis, fontsize=size, color=INK)
    axes.set_yticks([] if narrow else range(len(bars)), [] if narrow else [bar.label for bar in bars])
    dress(axes, size)
    axes.grid(visible=False, axis="y")
    for label, bar in zip([] if narrow else axes.get_yticklabels(), bars, strict=False):
        label.set_fontweight("bold" if bar.subject == "emlio" else "normal")
    figure.text(
        0.02, 1 - 0.06 / height, title, fontsize=size + 1.5, color=INK, va="top", linespacing=1.25, fontweight="bold"
    )
    left = 0.12 / NARROW if narrow else _label_share(bars)
    figure.subplots_adjust(left=left, right=0.95 if narrow else 0.98, bottom=_FOOT / height, top=1 - head / height)
    return figure


def _longest(bar: Bar) -> float:
    return max(bar.extent.most, bar.beside.most if bar.beside is not None else 0.0)


def _label_share(bars: Sequence[Bar]) -> float:
    """Return the share of the width that the longest label takes.

    The estimate is about half the font size for each letter, and a margin.
    """
    letters = max(len(bar.label) for bar in bars)
    return min((0.57 * _SIZE / 72 * letters + 0.25) / WIDE, 0.5)


def _draw(axes: Any, place: int, bar: Bar, begin: float, *, narrow: bool, size: float) -> None:
    fill = colour(bar.subject)
    alpha = _DEFAULT_ALPHA if bar.pale else 1.0
    thick, shift = (0.3, 0.22) if narrow else (0.56, 0.0)
    if bar.beside is not None:
        thick, shift = (0.22, 0.16) if narrow else (0.4, -0.12)
    middle = place + shift
    of = bar.extent
    axes.barh(middle, of.median - begin, thick, left=begin, color=fill, alpha=alpha, linewidth=0, zorder=2)
    if of.bound:  # an open triangle means "more than", as in the curves
        axes.plot([of.median], [middle], ">", markersize=5, markerfacecolor="none", color=INK, zorder=4)
    elif of.most > of.least:
        axes.hlines(middle, of.least, of.most, color=INK, linewidth=1.0, alpha=0.75, zorder=3)
    if bar.beside is not None:
        below = middle + thick / 2 + 0.09
        axes.barh(
            below,
            bar.beside.median - begin,
            0.16,
            left=begin,
            color=MUTED,
            alpha=_BESIDE_ALPHA if bar.pale else 0.75,
            linewidth=0,
            zorder=2,
        )
    axes.annotate(
        bar.said,
        (_longest(bar), middle),
        xytext=(8 if of.bound else 4, 0),
        textcoords="offset points",
        va="center",
        fontsize=size,
        color=INK,
        fontweight="bold" if bar.subject == "emlio" else "normal",
    )
    if narrow:
        axes.annotate(
            bar.label,
            (0, place - 0.2),
            xycoords=axes.get_yaxis_transform(),
            xytext=(1, 0),
            textcoords="offset points",
            va="center",
            fontsize=size,
            color=INK,
            fontweight="bold" if bar.subject == "emlio" else "normal",
        )


def dress(axes: Any, size: float) -> None:
    """Style the axes: light lines, plain numbers, and colours that a page can change."""
    axes.tick_params(axis="both", which="both", length=0, labelsize=size, colors=INK)
    if axes.get_xscale() == "log":
        plain_logarithms(axes.xaxis)
    axes.grid(axis="x", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
