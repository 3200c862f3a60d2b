"""Bars of a race: a row for each system at its best setting and at its defaults.

Covers: one panel of horizontal bars, wide for a desktop and narrow for a phone, bounds of cut runs.
Does not cover: the quantities that are drawn (emlio_bench.race.report.plots), curves
(emlio_bench.race.report.curves).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from emlio_bench.harness.palette import INK, MUTED, colour
from emlio_bench.harness.plot import NARROW, Sheet, blank_figure, dress
from emlio_bench.harness.spread import Spread
from emlio_bench.race.report.standing import DEFAULT, OURS, Standing

__all__ = ["Bar", "draw_bars", "labelled", "named"]

_LABELS: Final = {"emlio": "EMLIO", "emlio-local": "EMLIO on one host", "paper": "the paper's method"}
_ROW: Final = 0.3
_NARROW_ROW: Final = 0.42
_FOOT: Final = 0.62
_HEAD: Final = 0.45
_DEFAULT_ALPHA: Final = 0.5
_BESIDE_ALPHA: Final = 0.4
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
        of: value of the bar.
        beside: value of a thinner bar below; None for no such bar.
        said: text beside the bar.
    """

    label: str
    subject: str
    pale: bool
    of: Spread
    beside: Spread | None
    said: str


def labelled(subject: str) -> str:
    """Return the display name of a system."""
    return _LABELS.get(subject, subject)


def named(row: Standing) -> str:
    """Return the display name of a system at one of its settings."""
    subject = labelled(row.entrant.subject)
    only = row.entrant.family == "ours" and row.entrant.setting == DEFAULT
    return subject if only else f"{subject}, {row.entrant.setting}"


def draw_bars(bars: Sequence[Bar], chosen: Sheet, title: str, *, axis: str) -> Any:
    """Draw the bars, and return the matplotlib figure.

    Args:
        bars: the bars from top to bottom.
        chosen: size of the plot. A narrow one has labels above the bars.
        title: title of the panel.
        axis: quantity of the bars, with its unit.
    """
    narrow = chosen is NARROW
    rows = (_NARROW_ROW if narrow else _ROW) * len(bars)
    figure, axes = blank_figure(chosen.width, _HEAD + _FOOT + rows, title=title, font=chosen.font)
    height = figure.get_figheight()
    axes.set_xlim(0.0, (max(map(_longest, bars)) or 1.0) * (1.55 if narrow else _ROOM))
    axes.set_ylim(len(bars) - 0.5, -0.5)
    for place, bar in enumerate(bars):
        _draw(axes, place, bar, chosen)
    axes.locator_params(axis="x", nbins=_NARROW_TICKS if narrow else _TICKS)
    axes.set_xlabel(axis)
    axes.set_yticks([] if narrow else range(len(bars)), [] if narrow else [bar.label for bar in bars])
    dress(axes, chosen.font, grid="x")
    for label, bar in zip([] if narrow else axes.get_yticklabels(), bars, strict=False):
        label.set_fontweight(_weight(bar))
    left = 0.12 / chosen.width if narrow else _label_share(bars, chosen)
    right, top = 0.95 if narrow else 0.98, (_FOOT + rows) / height
    figure.subplots_adjust(left=left, right=right, bottom=_FOOT / height, top=top)
    return figure


def _weight(bar: Bar) -> str:
    return "bold" if bar.subject == OURS else "normal"


def _longest(bar: Bar) -> float:
    return max(bar.of.most, bar.beside.most if bar.beside is not None else 0.0)


def _label_share(bars: Sequence[Bar], chosen: Sheet) -> float:
    """Return the share of the width that the longest label takes.

    The estimate is about half the font size for each letter, and a margin.
    """
    letters = max(len(bar.label) for bar in bars)
    return min((0.57 * chosen.font / 72 * letters + 0.25) / chosen.width, 0.5)


def _draw(axes: Any, place: int, bar: Bar, chosen: Sheet) -> None:
    narrow, of, fill = chosen is NARROW, bar.of, colour(bar.subject)
    thick, shift = (0.3, 0.22) if narrow else (0.56, 0.0)
    if bar.beside is not None:
        thick, shift = (0.22, 0.16) if narrow else (0.4, -0.12)
    middle = place + shift
    plain: dict[str, Any] = {"linewidth": 0, "zorder": 2}
    axes.barh(middle, of.median, thick, color=fill, alpha=_DEFAULT_ALPHA if bar.pale else 1.0, **plain)
    if of.bound:  # an open triangle means "more than", as in the curves
        axes.plot([of.median], [middle], ">", markersize=5, markerfacecolor="none", color=INK, zorder=4)
    elif of.most > of.least:
        axes.hlines(middle, of.least, of.most, color=INK, linewidth=1.0, alpha=0.75, zorder=3)
    if bar.beside is not None:
        below, alpha = middle + thick / 2 + 0.09, _BESIDE_ALPHA if bar.pale else 0.75
        axes.barh(below, bar.beside.median, 0.16, color=MUTED, alpha=alpha, **plain)
    words: dict[str, Any] = {
        "textcoords": "offset points",
        "va": "center",
        "fontsize": chosen.font,
        "color": INK,
        "fontweight": _weight(bar),
    }
    axes.annotate(bar.said, (_longest(bar), middle), xytext=(8 if of.bound else 4, 0), **words)
    if narrow:
        across = axes.get_yaxis_transform()
        axes.annotate(bar.label, (0, place - 0.2), xycoords=across, xytext=(1, 0), **words)
