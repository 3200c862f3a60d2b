"""Epochs of a race over the round trip, on logarithmic axes.

Covers: a line for each system, open triangles for cut runs, the computed N x RTT lines. Does not
cover: a single round trip (emlio_bench.race.report.bars).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from emlio.units import format_duration
from emlio_bench.harness.palette import INK, MUTED, colour
from emlio_bench.harness.plot import NARROW, Sheet, blank_figure, dress
from emlio_bench.harness.spread import Spread
from emlio_bench.race.report.round_trips import Law
from emlio_bench.race.report.standing import OURS

__all__ = ["Curve", "draw_curves"]

_NO_RTT_MS: Final = 0.04
"""The position of a link without a round trip: 0 has no logarithm."""
_PLOT: Final = 3.5
_NARROW_PLOT: Final = 3.2
_SIGN: Final = 0.2
"""The height of a line of the legend, in inches."""
_HEAD: Final = 0.5
_FOOT: Final = 0.52
_LETTER: Final = 0.5
_CUT: Final[dict[str, Any]] = {"linestyle": "none", "marker": "^", "markerfacecolor": "none"}
_LAW: Final[dict[str, Any]] = {"linestyle": (0, (4, 2.5)), "linewidth": 1.1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A system over several round trips.

    Attributes:
        label: label of the curve.
        subject: system whose colour the curve has.
        pale: whether the curve is pale, as the lesser of a system's curves.
        points: round trips in ns, each with its measured value.
    """

    label: str
    subject: str
    pale: bool
    points: tuple[tuple[int, Spread], ...]


def draw_curves(curves: Sequence[Curve], laws: Sequence[Law], chosen: Sheet, title: str) -> Any:
    """Draw the curves, and return the matplotlib figure.

    Args:
        curves: at least one curve.
        laws: laws to draw as dashed lines; the line of a curve's subject has the curve's colour.
        chosen: size of the plot.
        title: title of the panel.
    """
    width, font = chosen.width, chosen.font
    plot = _NARROW_PLOT if chosen is NARROW else _PLOT
    longest = max(len(curve.label) for curve in curves)
    columns = max(int((width - 0.1) / (0.45 + _LETTER * font / 72 * longest)), 1)
    signs = len(curves) + 1 + bool(laws)
    legend = 0.1 + _SIGN * -(-signs // columns)
    figure, axes = blank_figure(width, _HEAD + plot + _FOOT + legend, title=title, font=font)
    height = figure.get_figheight()
    axes.set_xscale("log")
    axes.set_yscale("log")
    rtts = sorted({rtt_ns for curve in curves for rtt_ns, _ in curve.points})
    for law in laws:
        _draw_law(axes, law, rtts, curves, font)
    for curve in reversed(curves):
        _draw(axes, curve)
    axes.set_xlim(_place(rtts[0]) / 1.5, _place(rtts[-1]) * 1.5)
    axes.set_xlabel("round trip of the link, ms")
    axes.set_ylabel("first epoch, s")
    dress(axes, font)
    axes.set_xticks([_place(rtt_ns) for rtt_ns in rtts], [_milliseconds(rtt_ns) for rtt_ns in rtts], minor=False)
    axes.set_xticks([], minor=True)
    figure.legend(
        handles=_signs(axes, curves, computed=bool(laws)),
        loc="lower left",
        bbox_to_anchor=(0.01, 0.0),
        ncols=columns,
        frameon=False,
        fontsize=font,
        labelcolor=INK,
        handlelength=1.8,
        columnspacing=1.2,
        borderaxespad=0.2,
    )
    left, right = (0.62 if chosen is NARROW else 0.7) / width, 1 - 0.12 / width
    bottom, top = (legend + _FOOT) / height, (legend + _FOOT + plot) / height
    figure.subplots_adjust(left=left, right=right, bottom=bottom, top=top)
    return figure


def _place(rtt_ns: int) -> float:
    return rtt_ns / 1e6 or _NO_RTT_MS


def _draw(axes: Any, curve: Curve) -> None:
    ours = curve.subject == OURS
    style: dict[str, Any] = {**_colour(curve), "zorder": 5 if ours else 3}
    whole = [(_place(rtt_ns), of) for rtt_ns, of in curve.points if not of.bound]
    cut = [(_place(rtt_ns), of) for rtt_ns, of in curve.points if of.bound]
    line = {"marker": "o", "markersize": 6 if ours else 4, "markeredgewidth": 0, "linewidth": _width(curve)}
    for points, kind in ((whole, line), (cut, {**_CUT, "markersize": 8, "markeredgewidth": 1.3})):
        axes.plot([place for place, _ in points], [of.median for _, of in points], **kind, **style)
    axes.vlines([place for place, _ in whole], [of.least for _, of in whole], [of.most for _, of in whole], **style)


def _colour(curve: Curve) -> dict[str, Any]:
    return {"color": colour(curve.subject), "alpha": 0.6 if curve.pale else 1.0}


def _width(curve: Curve) -> float:
    return 2.8 if curve.subject == OURS else 1.0 if curve.pale else 1.5


def _draw_law(axes: Any, law: Law, rtts: Sequence[int], curves: Sequence[Curve], font: float) -> None:
    measured = any(curve.subject == law.subject for curve in curves)
    begin, end = _place(rtts[0]), _place(rtts[-1])
    steps = [begin * (end / begin) ** (step / 40) for step in range(41)]
    seconds = [law.seconds(step * 1e6) for step in steps]
    axes.plot(steps, seconds, color=colour(law.subject) if measured else MUTED, alpha=0.9, zorder=2, **_LAW)
    if not measured:
        axes.annotate(
            f"the paper's {law.subject},\nits own data and machines",
            (begin, seconds[0]),
            xytext=(0, 10),
            textcoords="offset points",
            fontsize=font - 1,
            color=MUTED,
            linespacing=1.2,
        )


def _milliseconds(rtt_ns: int) -> str:
    return format_duration(rtt_ns).removesuffix(" ms") if rtt_ns >= 1_000_000 else f"{rtt_ns / 1e6:g}"


def _signs(axes: Any, curves: Sequence[Curve], *, computed: bool) -> list[Any]:
    """Return the symbols of the legend, drawn from empty lines."""
    styles: list[dict[str, Any]] = [
        {"marker": "o", "markersize": 4, "linewidth": _width(curve), "label": curve.label, **_colour(curve)}
        for curve in curves
    ]
    styles.append({"color": MUTED, "markersize": 7, "label": "cut: longer than", **_CUT})
    if computed:
        styles.append({"color": MUTED, "label": "computed: N x RTT", **_LAW})
    return [sign for style in styles for sign in axes.plot([], [], **style)]
