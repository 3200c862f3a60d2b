"""The plot of a run of attacks.

Covers: the share of its speed that a rank kept, each span a dot, beside the bound. Does not cover:
measuring (emlio_bench.attacks.stage), matplotlib (emlio_bench.harness.plot).
"""

from pathlib import Path

from emlio_bench.attacks.figures import LEAST_KEPT, kept_figures
from emlio_bench.experiment.drawing import BOUND, INK, OURS, dress, stamp
from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import spread

__all__ = ["plot_attacks"]


def plot_attacks(results: Results, path: Path) -> None:
    """Draw the ratios of the run."""
    figures = kept_figures(results)
    with sheet(path, width=9.0, height=1.6 + 0.42 * len(figures)) as (figure, axes):
        for place, one in enumerate(figures.values()):
            axes.plot(one.values, [place] * len(one.values), "o", color=OURS, alpha=0.5, markersize=6, mew=0)
            axes.vlines(spread(one.values).median, place - 0.25, place + 0.25, color=INK, linewidth=1.6, zorder=3)
        axes.axvline(1.0, color="#999999", linewidth=1, linestyle="--")
        axes.axvline(LEAST_KEPT, color=BOUND, linewidth=1.4)
        axes.set_yticks(range(len(figures)), list(figures))
        axes.set_ylim(len(figures) - 0.4, -0.6)
        axes.set_xlim(0, max(1.1, *(1.03 * value for one in figures.values() for value in one.values)))
        axes.set_xlabel(
            "speed in a span of attack / in its quiet neighbours; dark: median, red: what it must keep", fontsize=8.5
        )
        dress(axes, grid="x")
        axes.set_title("What a legitimate rank keeps of its speed under attack", loc="left", fontsize=11)
        stamp(figure, results, at=(0.99, 0.01), size=6)
        figure.tight_layout(rect=(0, 0.03, 1, 1))
