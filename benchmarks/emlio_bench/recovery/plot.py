"""The plot of a recovery run.

Covers: each time as a dot beside its bound, and the time after a return over the time away. Does
not cover: measuring (emlio_bench.recovery.events), matplotlib (emlio_bench.harness.plot).
"""

from pathlib import Path
from typing import Any, Final

from emlio_bench.experiment.drawing import BOUND, INK, OURS, dress, stamp
from emlio_bench.experiment.figures import by_name
from emlio_bench.harness.plot import sheet
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.spread import spread
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


def plot_recovery(results: Results, path: Path) -> None:
    """Draw the times of the run."""
    figures, repeats = by_name(results), dict(results.settings)["repeats"]
    with sheet(path, width=12.5, height=5.2, panels=2) as (figure, (left, right)):
        _draw_times(left, [figures[name] for name in _DRAWN])
        _draw_returns(right, figures[AWAY], figures[BACK])
        figure.text(0.02, 0.94, f"What a rank sees of a daemon that fails, {repeats} times each", fontsize=13)
        stamp(figure, results, at=(0.98, 0.012))
        figure.tight_layout(rect=(0.01, 0.03, 0.99, 0.89), w_pad=3)


def _draw_times(axes: Any, figures: list[Figure]) -> None:
    for place, figure in enumerate(figures):
        of = spread(figure.values)
        axes.plot(figure.values, [place] * len(figure.values), "o", color=OURS, alpha=0.45, markersize=5, mew=0)
        axes.vlines(of.median, place - 0.22, place + 0.22, color=INK, linewidth=1.4, zorder=3)
        if figure.at_most is not None:
            axes.vlines(figure.at_most, place - 0.34, place + 0.34, color=BOUND, linewidth=1.6)
    axes.set_yticks(range(len(figures)), [_DRAWN[figure.name] for figure in figures])
    axes.set_ylim(len(figures) - 0.4, -0.6)
    axes.set_xlim(left=-0.1)
    axes.set_xlabel("seconds; dark: median, red: the bound that each must keep", fontsize=8.5)
    dress(axes, grid="x")


def _draw_returns(axes: Any, away: Figure, back: Figure) -> None:
    axes.plot(away.values, back.values, "o", color=OURS, markersize=5)
    axes.axvline(3.0, color="#999999", linewidth=1, linestyle="--")
    axes.annotate(
        "missed from about here on", (3.0, 0.96), (4, 0), ("data", "axes fraction"), "offset points", fontsize=8
    )
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds that it was away", fontsize=8.5)
    axes.set_ylabel("seconds from its return to the next batch", fontsize=8.5)
    dress(axes, grid="both")
