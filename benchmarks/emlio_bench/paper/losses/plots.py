"""The plot of figure 11: the loss of a training over its steps, and beside it over seconds.

Covers: one drawing of two panels, a line for each reader and seed. Does not cover: matplotlib
(emlio_bench.harness.plot).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from emlio.units import format_duration
from emlio_bench.harness.palette import INK, MUTED, colour
from emlio_bench.harness.plot import NARROW, Drawing, Sheet, blank_figure, dress
from emlio_bench.paper.losses.curves import LEVEL, LossCurve, curves_of, subjects_of
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.report.bars import labelled

__all__ = ["loss_drawings"]

_PANEL: Final = 2.9
"""Height of a panel with the label of its axis, in inches."""
_HEAD: Final = 0.4
_LEGEND_LINE: Final = 0.2
_LABEL: Final = 0.52
"""Height of the numbers and the label below a panel."""
_LEFT: Final = 0.62
_STYLES: Final = ("solid", (0, (4, 1.5)), (0, (1.2, 1.2)))
"""The lines of the seeds, in turn."""


def loss_drawings(race: Race, contest: Contest) -> tuple[Drawing, ...]:
    """Return the plot of a contest; none if no model was trained."""
    curves = curves_of(race, contest)
    if not curves:
        return ()
    name = contest.name.rpartition("-")[0]
    return (
        Drawing(
            name=f"{name}-loss",
            title=f"{name}: loss over steps and over seconds",
            where=f"{format_duration(contest.rtt_ns)}, {contest.corpus.text}",
            caption="each line one seed of the model, the mean over the last tenth of all steps; pale: each step alone; "
            "dotted: the loss whose time is compared",
            draw=partial(_draw, curves),
        ),
    )


def _draw(curves: Sequence[LossCurve], chosen: Sheet, title: str) -> Any:
    subjects = subjects_of(curves)
    stacked = chosen is NARROW
    rows, lines = (2, len(subjects)) if stacked else (1, 1)
    foot = 0.1 + _LEGEND_LINE * lines
    figure, panels = blank_figure(
        chosen.width, _HEAD + rows * _PANEL + foot, title=title, font=chosen.font, panels=(rows, 3 - rows)
    )
    height = figure.get_figheight()
    for axes, timed in zip(panels, (False, True), strict=True):
        _panel(axes, curves, timed=timed)
        axes.set_ylabel("cross entropy, nats" if stacked or not timed else "")
        dress(axes, chosen.font)
    for subject in subjects:
        panels[0].plot([], [], color=colour(subject[0]), linewidth=1.6, label=labelled(subject[0]))
    figure.legend(
        loc="lower center",
        ncols=1 if stacked else len(subjects),
        fontsize=chosen.font - 1,
        frameon=False,
        labelcolor=INK,
    )
    figure.subplots_adjust(
        left=_LEFT / chosen.width,
        right=0.98,
        bottom=(foot + _LABEL) / height,
        top=1 - (height - rows * _PANEL - foot) / height,
        wspace=0.12,
        hspace=_LABEL / (_PANEL - _LABEL) + 0.06,
    )
    return figure


def _panel(axes: Any, curves: Sequence[LossCurve], *, timed: bool) -> None:
    for curve in curves:
        places = curve.seconds if timed else range(1, len(curve.losses) + 1)
        shade = colour(curve.subject[0])
        axes.plot(places, curve.losses, color=shade, linewidth=0.6, alpha=0.18, zorder=2)
        style = _STYLES[curve.round % len(_STYLES)]
        axes.plot(places, curve.smoothed, color=shade, linewidth=1.6, linestyle=style, zorder=3)
    axes.axhline(LEVEL, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.25 * max(max(curve.smoothed) for curve in curves))
    axes.set_xlabel("seconds from before the loader's constructor" if timed else "step")
