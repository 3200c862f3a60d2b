"""The plot of a pace run.

Covers: the figures of each pace as dots beside each other. Does not cover: measuring
(emlio_bench.pace.run), matplotlib (emlio_bench.harness.plot).
"""

from pathlib import Path
from typing import Any, Final

from emlio.wire.control import ENERGY, PACES
from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Results
from emlio_bench.harness.summary import spread
from emlio_bench.pace.run import FIGURES

__all__ = ["plot_pace"]

_COLOURS: Final = {ENERGY: "#2e8b57"}
_OTHER: Final = "#b0566b"
_INK: Final = "#333333"
_GRID: Final = "#e4e4e4"
_PANELS: Final = (
    (FIGURES[0], "seconds"),
    *((f"{part}: {name}", "seconds") for name in FIGURES[1:3] for part in ("last epoch", "whole run")),
    *((f"last epoch: {name}", "times") for name in FIGURES[3:]),
)


def plot_pace(results: Results, path: Path) -> None:
    """Draw a panel for each figure, from 0, with a bar for each pace."""
    figures = {figure.name: figure for figure in results.figures}
    with sheet(path, width=15, height=3.4, panels=len(_PANELS)) as (figure, panels):
        for axes, (name, unit) in zip(panels, _PANELS, strict=True):
            for place, pace in enumerate(PACES):
                values = figures[f"{name}, {pace}"].values
                colour = _COLOURS.get(pace, _OTHER)
                axes.bar([place], [spread(values).median], width=0.6, color=colour, alpha=0.35)
                axes.plot([place] * len(values), values, "o", color=colour, markersize=4, mew=0)
            axes.set_xticks(range(len(PACES)), PACES)
            axes.set_title(name.replace(": ", ":\n"), fontsize=9, color=_INK)
            axes.set_ylabel(unit, fontsize=8)
            axes.set_ylim(bottom=0)
            _dress(axes)
        _caption(figure, results)
        figure.tight_layout(rect=(0.005, 0.05, 0.995, 0.9), w_pad=1.5)


def _dress(axes: Any) -> None:
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _caption(figure: Any, results: Results) -> None:
    world, told = results.environment, dict(results.settings)
    work_ms = int(told["work_ns"]) / 1e6
    title = f"A consumer that takes {work_ms:g} ms for a batch: racing, and reading what it needs"
    figure.text(0.01, 0.93, title, fontsize=12)
    figure.text(
        0.99,
        0.015,
        f"bars: medians; {world.cpu or 'unknown processor'}, {world.cores} cores, Linux {world.kernel}, {world.python}, "
        f"emlio {world.commit or world.emlio}",
        ha="right",
        fontsize=6.5,
        color="#888888",
    )
