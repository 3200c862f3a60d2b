"""The plots of figure 11: the loss of a training over its steps and over seconds.

Covers: both drawings, a line for each reader and seed. Does not cover: matplotlib
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

_HEIGHT: Final = 3.4
_LEGEND_LINE: Final = 0.2
_STYLES: Final = ("solid", (0, (4, 1.5)), (0, (1.2, 1.2)))
"""The lines of the seeds, in turn."""


def loss_drawings(race: Race, contest: Contest) -> tuple[Drawing, ...]:
    """Return both plots of a contest; none if no model was trained."""
    curves = curves_of(race, contest)
    if not curves:
        return ()
    name = contest.name.rpartition("-")[0]
    where = f"{format_duration(contest.rtt_ns)}, {contest.corpus.text}"
    caption = "each line one seed of the model, the mean over the last tenth of all steps; pale: each step alone"
    return (
        Drawing(
            name=f"{name}-loss-steps",
            title=f"{name}: loss over steps",
            where=where,
            caption=caption,
            draw=partial(_draw, curves, False),
        ),
        Drawing(
            name=f"{name}-loss-seconds",
            title=f"{name}: loss over seconds",
            where=where,
            caption=f"{caption}; dotted: the loss whose time is compared",
            draw=partial(_draw, curves, True),
        ),
    )


def _draw(curves: Sequence[LossCurve], timed: bool, chosen: Sheet, title: str) -> Any:
    names = [_named(subject) for subject in subjects_of(curves)]
    lines = len(names) if chosen is NARROW else 1
    figure, axes = blank_figure(chosen.width, _HEIGHT + _LEGEND_LINE * lines, title=title, font=chosen.font)
    height = figure.get_figheight()
    for curve in curves:
        places = curve.seconds if timed else range(1, len(curve.losses) + 1)
        shade = colour(curve.subject[0])
        axes.plot(places, curve.losses, color=shade, linewidth=0.6, alpha=0.18, zorder=2)
        style = _STYLES[curve.round % len(_STYLES)]
        axes.plot(places, curve.smoothed, color=shade, linewidth=1.6, linestyle=style, zorder=3)
    if timed:
        axes.axhline(LEVEL, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
    for subject, name in zip(subjects_of(curves), names, strict=True):
        axes.plot([], [], color=colour(subject[0]), linewidth=1.6, label=name)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.25 * max(max(curve.smoothed) for curve in curves))
    axes.set_xlabel("seconds from before the loader's constructor" if timed else "step")
    axes.set_ylabel("cross entropy, nats")
    dress(axes, chosen.font)
    foot = 0.62 + _LEGEND_LINE * lines
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.5 / (height - foot - 0.4)),
        ncols=1 if chosen is NARROW else max(len(names), 1),
        fontsize=chosen.font - 1,
        frameon=False,
        labelcolor=INK,
    )
    figure.subplots_adjust(left=0.62 / chosen.width, right=0.98, bottom=foot / height, top=1 - 0.4 / height)
    return figure


def _named(subject: tuple[str, str]) -> str:
    return labelled(subject[0])
