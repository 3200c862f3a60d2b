"""The plot of `emlio-bench mixtures`: deviations in windows of samples, along an epoch.

Covers: one drawing with a panel for each mixture. Does not cover: matplotlib and its files (emlio_bench.harness.plot).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from emlio_bench.harness.page import Picture
from emlio_bench.harness.palette import INK, colour
from emlio_bench.harness.plot import NARROW, Drawing, Sheet, blank_figure, dress
from emlio_bench.mixtures.exactness import Deviations
from emlio_bench.mixtures.outcome import MixturesResults
from emlio_bench.race.outcome import Contest

__all__ = ["draw_mixtures"]

_HEAD: Final = 0.75
_FOOT: Final = 0.55
_PANEL: Final = 2.1
_POINTS: Final = 200
"""The points of a line, about."""


def draw_mixtures(results: MixturesResults) -> tuple[Picture, ...]:
    """Return the plot, or nothing if no epoch was as long as a window."""
    shown = [
        contest
        for contest in results.contests
        if any(results.windows(contest, subject) for subject in results.subjects(contest))
    ]
    if not shown:
        return ()
    drawing = Drawing(
        name="deviations",
        title=f"Records too many or too few in {results.window:,} samples in a row",
        where="of the dataset that is off the most",
        caption="medians, the band from the least to the most of all rounds; a line ends with the shortest epoch",
        draw=partial(_draw, results, shown),
    )
    return (drawing.picture(),)


def _draw(results: MixturesResults, contests: Sequence[Contest], chosen: Sheet, title: str) -> Any:
    across = 1 if chosen is NARROW else len(contests)
    down = len(contests) // across
    height = _HEAD + down * (_PANEL + _FOOT)
    figure, axes = blank_figure(chosen.width, height, title=title, font=chosen.font, panels=(down, across))
    panels = np.atleast_1d(axes).reshape(-1)
    most = 0.0
    for contest, panel in zip(contests, panels, strict=True):
        for subject in results.subjects(contest):
            windows = results.windows(contest, subject)
            if windows:
                most = max(most, _line(panel, subject, windows, results.window))
        panel.set_title(contest.name, fontsize=chosen.font, color=INK, loc="left")
        panel.set_xlim(results.window, results.mix(contest).samples)
        panel.set_xlabel("last sample of the window")
    for panel in panels:
        panel.set_ylim(0, 1.05 * max(most, 1.0))
        panel.set_ylabel("records")
        dress(panel, chosen.font)
    lines = {line.get_label(): line for panel in panels for line in panel.get_lines()}
    total = figure.get_figheight()
    place = (0.01, 1 - (total - height + 0.24) / total)
    columns = 2 if chosen is NARROW else len(lines)
    figure.legend(
        lines.values(),
        lines.keys(),
        loc="upper left",
        bbox_to_anchor=place,
        ncols=columns,
        frameon=False,
        fontsize=chosen.font,
        labelcolor=INK,
    )
    figure.subplots_adjust(
        left=0.5 / chosen.width,
        right=1 - 0.25 / chosen.width,
        bottom=_FOOT / total,
        top=1 - (total - height + _HEAD + 0.1) / total,
        hspace=(_FOOT + 0.25) / _PANEL,
        wspace=0.22,
    )
    return figure


def _line(panel: Any, subject: str, windows: Sequence[Deviations], window: int) -> float:
    """Draw a loader's line and band; return the largest value."""
    shortest = min(map(len, windows))
    worst = np.stack([np.abs(one[:shortest]).max(axis=1) for one in windows])
    chosen = np.arange(0, shortest, max(shortest // _POINTS, 1))
    ends = chosen + window
    panel.plot(ends, np.median(worst, axis=0)[chosen], color=colour(subject), linewidth=1.2, label=subject, zorder=3)
    if len(windows) > 1:
        low, high = worst.min(axis=0)[chosen], worst.max(axis=0)[chosen]
        panel.fill_between(ends, low, high, color=colour(subject), alpha=0.18, linewidth=0, zorder=2)
    return float(worst.max())
