"""Epochs of a race over the round trip, on logarithmic axes.

Covers: a line for each system, open triangles for cut runs, the computed N x RTT lines. Does not
cover: a single round trip (emlio_bench.race.bars).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from emlio.units import format_duration
from emlio_bench.harness.plot import blank_figure, plain_logarithms
from emlio_bench.race.bars import NARROW, WIDE
from emlio_bench.race.censored_range import Extent
from emlio_bench.race.palette import GRID, INK, MUTED, colour
from emlio_bench.race.round_trips import Law

__all__ = ["Curve", "draw_curves"]

_NO_RTT_MS: Final = 0.04
"""The position of a link without a round trip: 0 has no logarithm."""
_PLOT: Final = 3.5
_NARROW_PLOT: Final = 3.2
_SIGN: Final = 0.2
"""The height of a line of the legend, in inches."""
_HEAD: Final = 0.5
_FOOT: Final = 0.52
_SIZE: Final = 9.0
_NARROW_SIZE: Final = 8.5
_LETTER: Final = 0.5


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
    points: tuple[tuple[int, Extent], ...]


def draw_curves(curves: Sequence[Curve], laws: Sequence[Law], *, title: str, axis: str, narrow: bool) -> Any:
    """Draw the curves, and return the matplotlib figure.

    Args:
        curves: at least one curve.
        laws: laws to draw as dashed lines; the line of a curve's subject has the curve's colour.
        title: title of the panel.
        axis: label of the vertical axis, with its unit.
        narrow: whether to draw for a phone.
    """
    width, size = (NARROW, _NARROW_SIZE) if narrow else (WIDE, _SIZE)
    plot = _NARROW_PLOT if narrow else _PLOT
    longest = max(len(curve.label) for curve in curves)
    columns = max(int((width - 0.1) / (0.45 + _LETTER * size / 72 * longest)), 1)
    signs = len(curves) + 1 + bool(laws)
    legend = 0.1 + _SIGN * -(-signs // columns)
    head = _HEAD + 0.17 * title.count("\n")
    height = head + plot + _FOOT + legend
    figure, axes = blank_figure(width, height)
    axes.set_xscale("log")
    axes.set_yscale("log")
    rtts = sorted({rtt_ns for curve in curves for rtt_ns, _ in curve.points})
    for law in laws:
        _draw_law(axes, law, rtts, curves, size)
    for curve in reversed(curves):
        _draw(axes, curve)
    axes.set_xlim(_place(rtts[0]) / 1.5, _place(rtts[-1]) * 1.5)
    axes.set_xlabel("round trip of the link, ms", fontsize=size, color=INK)
    axes.set_ylabel(axis, fontsize=size, color=INK)
    _dress(axes, rtts, size)
    figure.text(
        0.02, 1 - 0.06 / height, title, fontsize=size + 1.5, color=INK, va="top", linespacing=1.25, fontweight="bold"
    )
    figure.legend(
        handles=_signs(axes, curves, computed=bool(laws)),
        loc="lower left",
        bbox_to_anchor=(0.01, 0.0),
        ncols=columns,
        frameon=False,
        fontsize=size,
        labelcolor=INK,
        handlelength=1.8,
        columnspacing=1.2,
        borderaxespad=0.2,
    )
    figure.subplots_adjust(
        left=(0.62 if narrow else 0.7) / width,
        right=1 - 0.12 / width,
        bottom=(legend + _FOOT) / height,
        top=1 - head / height,
    )
    return figure


def _place(rtt_ns: int) -> float:
    return rtt_ns / 1e6 or _NO_RTT_MS


def _draw(axes: Any, curve: Curve) -> None:
    ours = curve.subject == "emlio"
    style: dict[str, Any] = {
        "color": colour(curve.subject),
        "alpha": 0.6 if curve.pale else 1.0,
        "zorder": 5 if ours else 3,
    }
    whole = [(_place(rtt_ns), of) for rtt_ns, of in curve.points if not of.bound]
    cut = [(_place(rtt_ns), of.median) for rtt_ns, of in curve.points if of.bound]
    axes.plot(
        [place for place, _ in whole],
        [of.median for _, of in whole],
        marker="o",
        markersize=6 if ours else 4,
        markeredgewidth=0,
        linewidth=2.8 if ours else 1.0 if curve.pale else 1.5,
        **style,
    )
    axes.vlines([place for place, _ in whole], [of.least for _, of in whole], [of.most for _, of in whole], **style)
    axes.plot(
        [place for place, _ in cut],
        [median for _, median in cut],
        linestyle="none",
        marker="^",
        markersize=8,
        markerfacecolor="none",
        markeredgewidth=1.3,
        **style,
    )


def _draw_law(axes: Any, law: Law, rtts: Sequence[int], curves: Sequence[Curve], size: float) -> None:
    measured = any(curve.subject == law.subject for curve in curves)
    steps = [_place(rtts[0]) * (_place(rtts[-1]) / _place(rtts[0])) ** (step / 40) for step in range(41)]
    axes.plot(
        steps,
        [law.seconds(step * 1e6) for step in steps],
        linestyle=(0, (4, 2.5)),
        linewidth=1.1,
        color=colour(law.subject) if measured else MUTED,
        alpha=0.9,
        zorder=2,
    )
    if not measured:
        begin = _place(rtts[0])
        axes.annotate(
            f"the paper's {law.subject},\nits own data and machines",
            (begin, law.seconds(begin * 1e6)),
            xytext=(0, 10),
            textcoords="offset points",
            fontsize=size - 1,
            color=MUTED,
            linespacing=1.2,
        )


def _dress(axes: Any, rtts: Sequence[int], size: float) -> None:
    axes.tick_params(axis="both", which="both", length=0, labelsize=size, colors=INK)
    plain_logarithms(axes.yaxis)
    axes.set_xticks([_place(rtt_ns) for rtt_ns in rtts], [_milliseconds(rtt_ns) for rtt_ns in rtts], minor=False)
    axes.set_xticks([], minor=True)
    axes.grid(axis="both", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)


def _milliseconds(rtt_ns: int) -> str:
    return format_duration(rtt_ns).removesuffix(" ms") if rtt_ns >= 1_000_000 else f"{rtt_ns / 1e6:g}"


def _signs(axes: Any, curves: Sequence[Curve], *, computed: bool) -> list[Any]:
    """Return the symbols of the legend, drawn from empty lines."""
    signs: list[Any] = []
    for curve in curves:
        (line,) = axes.plot(
            [],
            [],
            marker="o",
            markersize=4,
            color=colour(curve.subject),
            alpha=0.6 if curve.pale else 1.0,
            linewidth=2.8 if curve.subject == "emlio" else 1.5,
            label=curve.label,
        )
        signs.append(line)
    style: dict[str, Any] = {"color": MUTED, "markerfacecolor": "none"}
    (cut,) = axes.plot([], [], linestyle="none", marker="^", markersize=7, label="cut: longer than", **style)
    signs.append(cut)
    if computed:
        (law,) = axes.plot([], [], linestyle=(0, (4, 2.5)), linewidth=1.1, label="computed: N x RTT", **style)
        signs.append(law)
    return signs
