"""The plot of a run of attacks.

Covers: the share of its speed that a rank kept, each span a dot, beside the bound. Does not cover:
measuring (emlio_bench.attacks.stage), matplotlib (emlio_bench.harness.plot).
"""

from pathlib import Path
from typing import Final

from emlio_bench.attacks.figures import LEAST_KEPT, kept_figures
from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Results
from emlio_bench.harness.summary import spread

__all__ = ["plot_attacks"]

_DOT: Final = "#1f6fa8"
_BOUND: Final = "#c0392b"
_INK: Final = "#333333"
_GRID: Final = "#e4e4e4"


def plot_attacks(results: Results, path: Path) -> None:
    """Draw the ratios of the run."""
    figures, world = kept_figures(results), results.environment
    with sheet(path, width=9.0, height=1.6 + 0.42 * len(figures)) as (figure, axes):
        for place, one in enumerate(figures.values()):
            axes.plot(one.values, [place] * len(one.values), "o", color=_DOT, alpha=0.5, markersize=6, mew=0)
            axes.vlines(spread(one.values).median, place - 0.25, place + 0.25, color=_INK, linewidth=1.6, zorder=3)
        axes.axvline(1.0, color="#999999", linewidth=1, linestyle="--")
        axes.axvline(LEAST_KEPT, color=_BOUND, linewidth=1.4)
        axes.set_yticks(range(len(figures)), list(figures))
        axes.set_ylim(len(figures) - 0.4, -0.6)
        axes.set_xlim(0, max(1.1, *(1.03 * value for one in figures.values() for value in one.values)))
        axes.set_xlabel(
            "speed in a span of attack / in its quiet neighbours; dark: median, red: what it must keep", fontsize=8.5
        )
        axes.grid(axis="x", color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, labelsize=8.5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_title("What a legitimate rank keeps of its speed under attack", loc="left", fontsize=11)
        figure.text(
            0.99,
            0.01,
            f"{world.cpu or 'unknown processor'}, {world.cores} cores, Linux {world.kernel}, {world.python}, "
            f"emlio {world.commit or world.emlio}",
            ha="right",
            fontsize=6,
            color="#888888",
        )
        figure.tight_layout(rect=(0, 0.03, 1, 1))
