"""The picture of the paper's figures: epochs by round trip, a panel for each task, and the losses of figure 11."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from emlio.units import format_duration
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.plot import MUTED, blank_figure, colour, dress, stamp
from emlio_bench.harness.results import Results
from emlio_bench.link.accuracy import LinkReport
from emlio_bench.paper.curves import LEVEL, LossCurve, curves_of
from emlio_bench.paper.report import contests_of, task_words, tasks_of
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.plot import labelled
from emlio_bench.race.report.standing import Standing, standings

__all__ = ["draw_paper"]

_GROUP: Final = 0.84
_ALPHA: Final = {"2 workers": 0.7, "4 workers": 0.45}
_STYLES: Final = ("solid", "dashed", "dotted")
"""The lines of the seeds, in turn."""


def draw_paper(race: Results) -> Any:
    """Return the figure; None if no run has ended."""
    rows = [row for row in standings(race) if row.of(Quantity.FIRST_EPOCH) is not None]
    panels = [(task_words(task), found) for task in tasks_of() if (found := contests_of(race, task))]
    curves = [curve for contest in race.contests for curve in curves_of(race, contest)]
    if not rows:
        return None
    count = len(panels) + 2 * bool(curves)
    figure, axes = blank_figure(10.0, 2.7 * -(-count // 2), rows=-(-count // 2), columns=2)
    places = list(axes.flat)
    for place, (title, contests) in zip(places, panels, strict=False):
        _bars(place, [row for row in rows if row.contest in contests], contests, dict(race.links))
        place.set_title(title, loc="left", fontsize=9)
    if curves:
        for place, timed in zip(places[len(panels) :], (False, True), strict=False):
            _losses(place, curves, timed=timed)
    for place in places[count:]:
        place.set_visible(False)
    stamp(figure, race)
    return figure


def _round_trip(contest: Contest, link: LinkReport | None) -> str:
    """Return the round trip that was asked for, or the measured one where that is far off."""
    measured = contest.rtt_ns if link is None else link.measured.median
    return format_duration(contest.rtt_ns if abs(measured - contest.rtt_ns) < contest.rtt_ns / 2 else measured)


def _bars(axes: Any, rows: Sequence[Standing], contests: Sequence[Contest], links: Mapping[str, LinkReport]) -> None:
    whos = list(dict.fromkeys(row.who for row in rows))
    width = _GROUP / len(whos)
    for row in rows:
        of = row.of(Quantity.FIRST_EPOCH)
        assert of is not None
        middle = contests.index(row.contest) - _GROUP / 2 + width * (whos.index(row.who) + 0.5)
        label = labelled(row) if row.contest == contests[-1] else None
        shade = colour(row.entrant.subject)
        axes.bar(middle, of.median, 0.92 * width, color=shade, alpha=_ALPHA.get(row.entrant.setting, 1.0), label=label)
        if of.bound:
            axes.plot([middle], [of.median], "^", markersize=4, markerfacecolor="none", color=MUTED)
        elif of.most > of.least:
            axes.vlines(middle, of.least, of.most, color=MUTED, linewidth=1.0, zorder=3)
    axes.set_xticks(range(len(contests)), [_round_trip(contest, links.get(contest.name)) for contest in contests])
    axes.set_xlabel("round trip")
    axes.set_ylabel("seconds of an epoch")
    axes.margins(y=0.1 if len(whos) > 3 else 0.4)
    dress(axes, size=7)
    axes.legend(fontsize=6, frameon=False, loc="upper left")


def _losses(axes: Any, curves: Sequence[LossCurve], *, timed: bool) -> None:
    for curve in curves:
        places = curve.seconds if timed else range(1, len(curve.losses) + 1)
        style = _STYLES[curve.round % len(_STYLES)]
        label = f"{curve.subject[0]}, seed {curve.round + 1}"
        axes.plot(places, curve.smoothed, color=colour(curve.subject[0]), linewidth=1.4, linestyle=style, label=label)
    axes.axhline(LEVEL, color=MUTED, linewidth=1.0, linestyle="dotted")
    axes.set_xlabel("seconds from before the loader's constructor" if timed else "step")
    axes.set_ylabel("loss, nats")
    dress(axes, size=7)
    axes.legend(fontsize=6, frameon=False)
