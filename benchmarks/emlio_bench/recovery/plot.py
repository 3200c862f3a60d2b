"""The picture of `emlio-bench recovery`: all waits with their bounds."""

from typing import Any, Final

from emlio_bench.harness.figures import by_name
from emlio_bench.harness.plot import BOUND, INK, OURS, blank_figure, dress, stamp
from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import spread
from emlio_bench.recovery.events import BACK, GIVEN_BACK, GONE, MOVING, MOVING_SOON, NOTICED, REPLACED

__all__ = ["draw_recovery"]

_DRAWN: Final = (BACK, MOVING, MOVING_SOON, NOTICED, REPLACED, GIVEN_BACK, GONE)


def draw_recovery(results: Results) -> Any:
    """Return the figure."""
    figures, repeats = by_name(results), dict(results.settings)["repeats"]
    figure, axes = blank_figure(9.0, 4.2, title=f"What a rank sees of a daemon that fails, {repeats} times each")
    for place, name in enumerate(_DRAWN):
        one = figures[name]
        axes.plot(one.values, [place] * len(one.values), "o", color=OURS, alpha=0.45, markersize=5, mew=0)
        axes.vlines(spread(one.values).median, place - 0.22, place + 0.22, color=INK, linewidth=1.4, zorder=3)
        if one.at_most is not None:
            axes.vlines(one.at_most, place - 0.34, place + 0.34, color=BOUND, linewidth=1.6)
    axes.set_yticks(range(len(_DRAWN)), [name.replace(": ", ":\n") for name in _DRAWN])
    axes.set_ylim(len(_DRAWN) - 0.5, -0.5)
    axes.set_xlabel("seconds; red: the bound")
    dress(axes, grid="x")
    stamp(figure, results)
    return figure
