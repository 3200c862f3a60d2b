"""Plots of power over time.

Covers: one panel per node, a line per domain, the stages as shades behind them; as a file or as
text for a page. matplotlib (extra "plot") is imported only here, and only when a plot is
requested. Does not cover: the figures (emlio.energy.report.power_trace).
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from math import nan
from pathlib import Path
from typing import Any, Final

from emlio.energy.report.power_trace import PowerLine, PowerTrace
from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.spans import Stage
from emlio.errors import ConfigError
from emlio.extras import how_to_install

__all__ = ["plot_power", "power_figure", "power_svg"]

_LINES: Final = {Domain.CPU: "#1f6fa8", Domain.DRAM: "#7d5ba6", Domain.GPU: "#c0392b"}
_SHADES: Final = {Stage.TRAIN: "#cfe8cf", Stage.PREPROCESS: "#fbe3b0", Stage.READ: "#e6e6e9"}
_INK: Final = "#333333"
_SHADING: Final = "shades: each stage's part of the time, from the bottom up"
_ESTIMATED: Final = "\nestimated, not measured"
"""Beside the axis of a node without counters: a model's line may be flat and look like data."""
_WIDTH: Final = 9.5
_PANEL: Final = 2.2
_MARGIN: Final = 1.1
_PAD: Final = 15
"""Points between a panel and its title; the epochs' labels are placed there."""
_LABEL: Final = 0.085
"""The part of the plot's width that a label of usual length takes."""
_USUAL_NAME: Final = 9
"""The usual length of a label, in characters."""
_NEAR: Final = 0.005
"""The part of the width below which two lines look like one."""
_SIGNS: Final = 7
"""Columns of the legend."""


def plot_power(traces: Sequence[PowerTrace], path: Path) -> None:
    """Draw into a file; its suffix selects the format (.png, .svg, .pdf).

    Args:
        traces: of all nodes, over the same time.
        path: of the plot.
    """
    figure = power_figure(traces)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: the plot cannot be written: {error}") from error


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
        raise ConfigError("a plot must have at least one node, got none")
    if find_spec("matplotlib") is None:
        raise ConfigError(f"a plot requires matplotlib: {how_to_install('plot')}")
    made: Any = import_module("matplotlib.figure")
    signs = _signs(traces)
    foot = 0.08 + 0.23 * -(-len(signs) // _SIGNS)
    height = _PANEL * len(traces) + _MARGIN + foot
    figure = made.Figure(figsize=(_WIDTH, height), dpi=150)
    panels = figure.subplots(len(traces), 1, sharex=True, squeeze=False)[:, 0]
    for panel, trace in zip(panels, traces, strict=True):
        _draw(panel, trace)
    panels[-1].set_xlabel("time, s")
    figure.text(0.02, 1 - 0.25 / height, "Power over time", fontsize=13, color=_INK, va="center")
    if any(trace.stages for trace in traces):
        figure.text(0.98, 1 - 0.25 / height, _SHADING, fontsize=8.5, color="#666666", va="center", ha="right")
    if signs:
        figure.legend(handles=signs, loc="lower center", ncols=min(len(signs), _SIGNS), frameon=False, fontsize=8.5)
    figure.tight_layout(rect=(0.01, foot / height, 0.99, 1 - 0.4 / height))
    return figure


def _draw(panel: Any, trace: PowerTrace) -> None:
    _shade(panel, trace)
    for line in trace.lines:
        watts = [nan if value is None else value for value in line.watts]
        panel.stairs(
            watts,
            trace.edges_s,
            baseline=None,
            color=_LINES[line.domain],
            linewidth=1.3,
            linestyle=_style(line),
            zorder=3,
        )
    _mark_epochs(panel, trace)
    most = max((value for line in trace.lines for value in line.watts if value is not None), default=1.0)
    panel.set_ylim(0, 1.12 * max(most, 1.0))
    panel.set_xlim(trace.edges_s[0], trace.edges_s[-1])
    estimated = bool(trace.lines) and all(line.method is Method.ESTIMATED for line in trace.lines)
    panel.set_ylabel(f"power, W{_ESTIMATED if estimated else ''}")
    panel.set_title(f"{trace.node} ({trace.role})", fontsize=10, color=_INK, loc="left", pad=_PAD, parse_math=False)
    panel.tick_params(axis="both", length=0, labelsize=8.5)
    panel.grid(axis="y", color="#888888", alpha=0.25, linewidth=0.8, zorder=1)  # visible both on shades and beside them
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)


def _mark_epochs(panel: Any, trace: PowerTrace) -> None:
    """Draw a line where an epoch begins, and where one ends that no other follows.

    The epoch's label is above the line if there is room.
    """
    room = 0.0
    length_s = trace.edges_s[-1] - trace.edges_s[0]
    for epoch in trace.epochs:
        second = epoch.from_ns / 1e9
        if not trace.edges_s[0] <= second < trace.edges_s[-1]:
            continue
        end = epoch.to_ns / 1e9
        follows = any(0 <= other.from_ns / 1e9 - end < _NEAR * length_s for other in trace.epochs)
        if not follows and end < trace.edges_s[-1]:
            panel.axvline(end, color=_INK, linewidth=0.8, linestyle=":", alpha=0.5, zorder=2)
        name = epoch.name or f"epoch {epoch.epoch}"
        told = second / length_s >= room
        panel.axvline(second, color=_INK, linewidth=0.8, linestyle=":", alpha=1.0 if told else 0.25, zorder=2)
        if told:
            panel.annotate(
                name,
                (second, 1),
                xycoords=panel.get_xaxis_transform(),
                xytext=(2, 3),
                textcoords="offset points",
                fontsize=8,
                color=_INK,
                annotation_clip=False,
            )
            room = second / length_s + _LABEL * max(len(name) / _USUAL_NAME, 1)


def _shade(panel: Any, trace: PowerTrace) -> None:
    """Draw each stage's part of the time from the bottom up.

    A long stage appears as a band, short stages as layers.
    """
    floor = [0.0] * (len(trace.edges_s) - 1)
    for stage, parts in trace.stages:
        top = [one + part for one, part in zip(floor, parts, strict=True)]
        panel.stairs(
            top,
            trace.edges_s,
            baseline=floor,
            fill=True,
            color=_SHADES[stage],
            linewidth=0,
            transform=panel.get_xaxis_transform(),
            zorder=0,
        )
        floor = top


def _style(line: PowerLine) -> str:
    return "--" if line.method is Method.ESTIMATED else "-"


def _signs(traces: Sequence[PowerTrace]) -> list[Any]:
    """Return the legend's entries for what is visible. Estimates are dashed lines."""
    lines: Any = import_module("matplotlib.lines")
    patches: Any = import_module("matplotlib.patches")
    seen = {(line.domain, line.method): line for trace in traces for line in trace.lines}
    signs = [
        lines.Line2D([], [], color=_LINES[domain], linestyle=_style(line), label=f"{domain.upper()}, {method}")
        for (domain, method), line in sorted(seen.items(), key=lambda item: list(_LINES).index(item[0][0]))
    ]
    if any(trace.stages for trace in traces):
        signs.extend(patches.Patch(color=_SHADES[stage], label=stage.value) for stage in _SHADES)
    return signs
