"""The look that the plots of all experiments share.

Covers: colours, the dress of axes, lines with a spread, the line about the machine. Does not cover:
matplotlib and files (emlio_bench.harness.plot).
"""

from collections.abc import Sequence
from typing import Any, Final

from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import spread

__all__ = ["BOUND", "INK", "OURS", "draw_spreads", "dress", "stamp"]

OURS: Final = "#1f6fa8"
BOUND: Final = "#c0392b"
INK: Final = "#333333"
_GRID: Final = "#e4e4e4"


def dress(axes: Any, *, grid: str = "y", size: float = 8.5, bare: Sequence[str] = ("top", "right")) -> None:
    """Draw a grid behind the data and take the frame away.

    Args:
        axes: the axes.
        grid: "x", "y" or "both".
        size: size of the labels of ticks.
        bare: sides without a line.
    """
    axes.grid(axis=grid, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=size)
    for side in bare:
        axes.spines[side].set_visible(False)


def draw_spreads(axes: Any, places: Sequence[float], samples: Sequence[Sequence[float]], **style: Any) -> None:
    """Draw medians as a line, each with a bar from the least to the most of its samples."""
    of = [spread(values) for values in samples]
    beyond = [[one.median - one.least for one in of], [one.most - one.median for one in of]]
    axes.errorbar(places, [one.median for one in of], yerr=beyond, marker="o", **style)


def stamp(
    figure: Any,
    results: Results,
    *,
    before: str = "",
    software: Sequence[str] | None = None,
    at: tuple[float, float] = (0.99, 0.015),
    size: float = 6.5,
) -> None:
    """Write a line about the machine at the bottom right.

    Args:
        figure: the matplotlib figure.
        results: results of the run.
        before: words before it.
        software: versions that matter besides Linux and this package; None for Python's.
        at: where the line ends, as shares of the figure.
        size: size of its letters.
    """
    world = results.environment
    words = (
        f"{before}{world.cpu or 'unknown processor'}",
        f"{world.cores} cores",
        f"Linux {world.kernel}",
        *((world.python,) if software is None else software),
        f"emlio {world.commit or world.emlio}",
    )
    figure.text(*at, ", ".join(words), ha="right", fontsize=size, color="#888888")
