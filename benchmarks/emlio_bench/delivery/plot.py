"""The plot of a delivery run.

Covers: one bar for each subject, in groups by record size, with the machine's limits as lines. Does
not cover: statistics (emlio_bench.harness.summary), matplotlib (emlio_bench.harness.plot).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from emlio_bench.harness.palette import INK, MUTED
from emlio_bench.harness.plot import dress, sheet
from emlio_bench.harness.report import label
from emlio_bench.harness.results import Results
from emlio_bench.harness.subject import BARE, LIMITS
from emlio_bench.harness.summary import Row, summarise

__all__ = ["plot_delivery"]

_COLOURS: Final = {
    "paper": "#b9bec7",
    "emlio-shard": "#7cb3d9",
    "emlio-global": "#1f6fa8",
    "emlio-shard-rows": "#e0b25c",
    "emlio-global-rows": "#b57d1c",
    "emlio-shard-views": "#b9a3dd",
    "emlio-global-views": "#7a56b3",
    "emlio-shard-sealed": "#8cc79a",
    "emlio-global-sealed": "#2e8b57",
}
_OTHER_COLOUR: Final = "#8f79b8"
_LIMIT_COLOUR: Final = "#c0392b"
_BARE_COLOUR: Final = "#333333"
_ORDER: Final = tuple(_COLOURS)
_BAR: Final = 0.26
_GROUP: Final = 0.84
"""The largest share of its slot on the axis that a group may take, for any number of bars."""


def plot_delivery(results: Results, path: Path) -> None:
    """Draw the throughput of the run."""
    rows = summarise(results)
    scenarios = list(dict.fromkeys(row.scenario for row in rows))
    names = sorted(
        {row.subject for row in rows} - {BARE, *LIMITS},
        key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name),
    )
    bar = min(_BAR, _GROUP / max(len(names), 1))
    with sheet(path, width=max(2.4 + max(2.0, 0.4 * len(names)) * len(scenarios), 8.0), height=5.6) as (figure, axes):
        for place, name in enumerate(names):
            _bars(axes, rows, scenarios, name, bar, place - (len(names) - 1) / 2)
        half = max(len(names), 1) * bar / 2 + 0.06
        for name in (*LIMITS, BARE):
            _lines(axes, rows, scenarios, name, half)
        _dress(axes, rows, scenarios)
        _caption(figure, results)
        figure.tight_layout(rect=(0.01, 0.03, 0.99, 0.89))


def _bars(axes: Any, rows: Sequence[Row], scenarios: Sequence[str], name: str, bar: float, shift: float) -> None:
    chosen = [row for row in rows if row.subject == name]
    places = [scenarios.index(row.scenario) + shift * bar for row in chosen]
    heights = [row.bytes_per_s.median / 1e9 for row in chosen]
    axes.bar(places, heights, bar * 0.92, color=_COLOURS.get(name, _OTHER_COLOUR), label=label(name), zorder=2)
    for row, place, height in zip(chosen, places, heights, strict=True):
        low, high = row.bytes_per_s.least / 1e9, row.bytes_per_s.most / 1e9
        axes.vlines(place, low, high, color=INK, linewidth=0.9, alpha=0.7, zorder=3)
        if row.of_bare is not None:
            axes.annotate(
                f"{row.of_bare.median:.0%}",
                (place, max(high, height)),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=INK,
                zorder=5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
            )


def _lines(axes: Any, rows: Sequence[Row], scenarios: Sequence[str], name: str, half: float) -> None:
    """Draw a limit as one line over each group: it was measured in the same rounds as the bars."""
    chosen = [row for row in rows if row.subject == name]
    if not chosen:
        return
    colour, style = (_BARE_COLOUR, "-") if name == BARE else (_LIMIT_COLOUR, "--")
    places = [scenarios.index(row.scenario) for row in chosen]
    heights = [row.bytes_per_s.median / 1e9 for row in chosen]
    begins, ends = [place - half for place in places], [place + half for place in places]
    axes.hlines(heights, begins, ends, colors=colour, linestyles=style, linewidth=1.6, label=label(name), zorder=4)
    for row, begin, end in zip(chosen, begins, ends, strict=True):
        low, high = row.bytes_per_s.least / 1e9, row.bytes_per_s.most / 1e9
        axes.fill_between([begin, end], low, high, color=colour, alpha=0.08, linewidth=0, zorder=1)


def _dress(axes: Any, rows: Sequence[Row], scenarios: Sequence[str]) -> None:
    axes.set_xticks(range(len(scenarios)), [f"{name} records" for name in scenarios])
    axes.set_ylabel("payload, GB/s")
    axes.set_ylim(0, 1.08 * max((row.bytes_per_s.most / 1e9 for row in rows), default=1.0))
    axes.set_xlim(-0.55, len(scenarios) - 0.45)
    dress(axes, grid="y")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=3, frameon=False, fontsize=8.5)


def _caption(figure: Any, results: Results) -> None:
    world = results.environment
    rounds = min((row.rounds for row in summarise(results)), default=0)
    figure.text(0.02, 0.945, "Records delivered to a training process over loopback", fontsize=13)
    figure.text(
        0.02,
        0.89,
        f"Median of {rounds} interleaved rounds; whiskers and bands from least to most.\n"
        "Percentages: part of the bare pair's throughput in the same round.",
        fontsize=8.5,
        color=MUTED,
    )
    figure.text(
        0.98,
        0.015,
        f"{world.cpu or 'unknown processor'}, {world.cores} cores, Linux {world.kernel}, {world.python}, "
        f"libzmq {world.libzmq}, emlio {world.commit or world.emlio}",
        ha="right",
        fontsize=6.5,
        color=MUTED,
    )
