"""The plot of a recovery run.

Covers: each time as a dot beside its bound, and the time after a return over the time away. Does
not cover: measuring (emlio_bench.recovery.events), matplotlib (emlio_bench.harness.plot).
"""

from pathlib import Path
from typing import Any, Final

from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.summary import spread
from emlio_bench.recovery.events import AWAY, BACK, GIVEN_BACK, GONE, MOVING, MOVING_SOON, NOTICED, REPLACED

__all__ = ["plot_recovery"]

_DRAWN: Final = {
    BACK: "killed and started again:\nfrom its return to the next batch",
    MOVING: "stopped for long:\nfrom its going on to the next batch",
    MOVING_SOON: "stopped shortly:\nfrom its going on to the next batch",
    NOTICED: "killed, with a replica:\nuntil it is noticed",
    REPLACED: "killed, with a replica:\nfrom then to the next batch",
    GIVEN_BACK: "killed, with a replica:\nlongest wait when it is back",
    GONE: "gone for good, timeout 4 s:\nuntil the rank's process has ended",
}
_DOT: Final = "#1f6fa8"
_BOUND: Final = "#c0392b"
_INK: Final = "#333333"
_GRID: Final = "#e4e4e4"


def plot_recovery(results: Results, path: Path) -> None:
    """Draw the times of the run."""
    figures = {figure.name: figure for figure in results.figures}
    with sheet(path, width=12.5, height=5.2, panels=2) as (figure, (left, right)):
        _draw_times(left, [figures[name] for name in _DRAWN])
        _draw_returns(right, figures[AWAY], figures[BACK])
        _caption(figure, results)
        figure.tight_layout(rect=(0.01, 0.03, 0.99, 0.89), w_pad=3)


def _draw_times(axes: Any, figures: list[Figure]) -> None:
    for place, figure in enumerate(figures):
        of = spread(figure.values)
        axes.plot(figure.values, [place] * len(figure.values), "o", color=_DOT, alpha=0.45, markersize=5, mew=0)
        axes.vlines(of.median, place - 0.22, place + 0.22, color=_INK, linewidth=1.4, zorder=3)
        if figure.at_most is not None:
            axes.vlines(figure.at_most, place - 0.34, place + 0.34, color=_BOUND, linewidth=1.6)
    axes.set_yticks(range(len(figures)), [_DRAWN[figure.name] for figure in figures])
    axes.set_ylim(len(figures) - 0.4, -0.6)
    axes.set_xlim(left=-0.1)
    axes.set_xlabel("seconds; dark: median, red: the bound that each must keep", fontsize=8.5)
    _dress(axes, "x")


def _draw_returns(axes: Any, away: Figure, back: Figure) -> None:
    axes.plot(away.values, back.values, "o", color=_DOT, markersize=5)
    axes.axvline(3.0, color="#999999", linewidth=1, linestyle="--")
    axes.annotate(
        "missed from about here on", (3.0, 0.96), (4, 0), ("data", "axes fraction"), "offset points", fontsize=8
    )
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds that it was away", fontsize=8.5)
    axes.set_ylabel("seconds from its return to the next batch", fontsize=8.5)
    _dress(axes, "both")


def _dress(axes: Any, grid: str) -> None:
    axes.grid(axis=grid, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _caption(figure: Any, results: Results) -> None:
    world, told = results.environment, dict(results.settings)
    figure.text(0.02, 0.94, f"What a rank sees of a daemon that fails, {told['repeats']} times each", fontsize=13)
    figure.text(
        0.98,
        0.012,
        f"{world.cpu or 'unknown processor'}, {world.cores} cores, Linux {world.kernel}, {world.python}, "
        f"emlio {world.commit or world.emlio}",
        ha="right",
        fontsize=6.5,
        color="#888888",
    )
