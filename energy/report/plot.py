"""The plot of power over time: one panel per node, a line per domain, the stages as shades behind them.

matplotlib (extra "plot") is imported only here, and only when a plot is requested.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from math import nan
from typing import Any, Final

from emlio.energy.report.power import PowerTrace
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.spans import Stage
from emlio.errors import ConfigError
from emlio.extras import how_to_install

__all__ = ["power_figure", "power_svg"]

_LINES: Final = {Domain.CPU: "#1f6fa8", Domain.DRAM: "#7d5ba6", Domain.GPU: "#c0392b"}
_SHADES: Final = {Stage.TRAIN: "#cfe8cf", Stage.PREPROCESS: "#fbe3b0", Stage.READ: "#e6e6e9"}
_INK: Final = "#333333"
_LABEL: Final = 0.085
"""The part of the plot's width that an epoch's label takes."""


def power_svg(traces: Sequence[PowerTrace]) -> str:
    """Draw as a self-contained svg element. The same traces give the same text."""
    text = StringIO()
    figure = power_figure(traces)
    matplotlib: Any = import_module("matplotlib")
    with matplotlib.rc_context({"svg.hashsalt": "emlio"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    written = text.getvalue()
    return written[written.index("<svg") :]


def power_figure(traces: Sequence[PowerTrace]) -> Any:
    """Return a matplotlib figure with one panel per node."""
    if not traces:
        raise ConfigError("there is nothing to plot: no energy was recorded")
    if find_spec("matplotlib") is None:
        raise ConfigError(f"a plot requires matplotlib: {how_to_install('plot')}")
    made: Any = import_module("matplotlib.figure")
    figure = made.Figure(figsize=(9.5, 2.4 * len(traces) + 0.8), dpi=150, layout="constrained")
    panels = figure.subplots(len(traces), 1, sharex=True, squeeze=False)[:, 0]
    signs: dict[str, Any] = {}
    for panel, trace in zip(panels, traces, strict=True):
        _draw(panel, trace)
        signs.update(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    panels[-1].set_xlabel("time, s; shades: each stage's part of the time, from the bottom up")
    if signs:
        figure.legend(signs.values(), signs.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    return figure


def _draw(panel: Any, trace: PowerTrace) -> None:
    _shade(panel, trace)
    for line in trace.lines:
        panel.stairs(
            [nan if value is None else value for value in line.watts],
            trace.edges_s,
            baseline=None,
            color=_LINES[line.domain],
            linewidth=1.3,
            linestyle="--" if line.method is Method.ESTIMATED else "-",
            label=f"{line.domain.upper()}, {line.method}",
            zorder=3,
        )
    _mark_epochs(panel, trace)
    most = max((value for line in trace.lines for value in line.watts if value is not None), default=1.0)
    panel.set_ylim(0, 1.12 * max(most, 1.0))
    panel.set_xlim(trace.edges_s[0], trace.edges_s[-1])
    estimated = bool(trace.lines) and all(line.method is Method.ESTIMATED for line in trace.lines)
    # A model's line may be flat and look like data.
    panel.set_ylabel("power, W" + "\nestimated, not measured" * estimated)
    panel.set_title(f"{trace.node} ({trace.role})", fontsize=10, color=_INK, loc="left", pad=15, parse_math=False)
    panel.grid(axis="y", color="#888888", alpha=0.25, linewidth=0.8, zorder=1)
    panel.spines[["top", "right", "left"]].set_visible(False)


def _mark_epochs(panel: Any, trace: PowerTrace) -> None:
    """Draw lines where epochs begin and end; label those whose beginning has room for it."""
    begin_s, end_s = trace.edges_s[0], trace.edges_s[-1]
    room_s = begin_s
    for title, from_s, to_s in trace.epochs:
        panel.axvline(to_s, color=_INK, linewidth=0.8, linestyle=":", alpha=0.4, zorder=2)
        panel.axvline(from_s, color=_INK, linewidth=0.8, linestyle=":", alpha=0.8, zorder=2)
        if room_s <= from_s < end_s:
            panel.annotate(
                title,
                (from_s, 1),
                xycoords=panel.get_xaxis_transform(),
                xytext=(2, 3),
                textcoords="offset points",
                fontsize=8,
            )
            room_s = from_s + _LABEL * (end_s - begin_s) * max(len(title) / 9, 1)


def _shade(panel: Any, trace: PowerTrace) -> None:
    """Draw each stage's part of the time from the bottom up.

    A long stage appears as a band, short stages as layers.
    """
    floor = [0.0] * (len(trace.edges_s) - 1)
    for stage, parts in trace.stages.items():
        top = [one + part for one, part in zip(floor, parts, strict=True)]
        panel.stairs(
            top,
            trace.edges_s,
            baseline=floor,
            fill=True,
            color=_SHADES[stage],
            linewidth=0,
            label=stage.value,
            transform=panel.get_xaxis_transform(),
            zorder=0,
        )
        floor = top
