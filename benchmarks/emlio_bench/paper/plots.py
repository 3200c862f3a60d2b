"""The pictures of the paper's figures: bars of epochs and of energy by round trip, as in the paper.

Covers: two drawings of a task. Does not cover: losses (emlio_bench.paper.losses.plots), matplotlib
(emlio_bench.harness.plot).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from emlio.units import format_duration
from emlio_bench.harness.page import Picture
from emlio_bench.harness.palette import INK, colour
from emlio_bench.harness.plot import NARROW, Drawing, Sheet, blank_figure, dress
from emlio_bench.harness.spread import Spread, number, text
from emlio_bench.paper.figures import FIGURES
from emlio_bench.paper.losses.plots import loss_drawings
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.report.bars import labelled, named
from emlio_bench.race.report.energy_table import joules_an_epoch, method_words
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.standing import OURS, Standing, standings

__all__ = ["draw_task", "drawings_of"]

_HEIGHT: Final = 3.6
_LEGEND_LINE: Final = 0.2
_GROUP: Final = 0.84
"""The width of all bars of a round trip; the distance between round trips is 1."""
_ABOVE: Final = 1.22
"""The ratio of the axis to the longest bar. The rest is room for the bar's figure."""
_CALLED: Final = {
    "emlio-local": "EMLIO, data on its host",
    "emlio-streams-1": "EMLIO, one connection",
    "emlio-streams-2": "EMLIO, two connections",
    "pytorch-files": "DataLoader, remote files",
    "dali-file": "DALI, remote files",
    "dali-tfrecord": "DALI, remote TFRecords",
    "dali-local": "DALI, data on its host",
}
"""Legends have words for a reader of the paper; tables have the names of commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    row: Standing
    whole: Spread
    rest: Spread | None = None


def draw_task(race: Race, contests: Sequence[Contest]) -> tuple[Picture, ...]:
    """Draw the pictures of one task.

    Args:
        race: the race of all figures.
        contests: contests of the task, from near to far.
    """
    losses = (drawing for contest in contests for drawing in loss_drawings(race, contest))
    return tuple(drawing.picture() for drawing in (*losses, *drawings_of(race, contests)))


def drawings_of(race: Race, contests: Sequence[Contest]) -> tuple[Drawing, ...]:
    """Return the pictures of one task for which there are figures."""
    rows = [row for row in standings(race) if row.contest in contests]
    name = contests[0].name.rpartition("-")[0]
    task = f"{name} ({_figures(name)})"
    of = f"by round trip, {contests[0].corpus.text}"
    found: list[Drawing] = []
    epochs = [_Bar(row=row, whole=whole) for row in rows if (whole := row.of(Quantity.FIRST_EPOCH)) is not None]
    if epochs:
        found.append(
            Drawing(
                name=f"{name}-epochs",
                title=f"{task}: {_finding(contests[-1], epochs, 's')}",
                where="",
                caption=f"seconds of an epoch {of}; a triangle marks runs that were stopped before their end",
                draw=partial(_draw, contests, epochs, "seconds of an epoch"),
            )
        )
    energy = [
        _Bar(row=row, whole=whole, rest=joules_an_epoch(row, of=lambda one: one.idle_joules))
        for row in rows
        if (whole := joules_an_epoch(row)) is not None
    ]
    if energy:
        found.append(
            Drawing(
                name=f"{name}-energy",
                title=f"{task}: {_finding(contests[-1], energy, 'J')}",
                where="",
                caption=f"joules of an epoch {of}, both hosts; the line in a bar is the energy at rest; "
                + "; ".join(dict.fromkeys(_method(bar.row) for bar in energy)),
                draw=partial(_draw, contests, energy, "joules of an epoch"),
            )
        )
    return tuple(found)


def _finding(contest: Contest, bars: Sequence[_Bar], unit: str) -> str:
    """Return what the longest round trip shows: our value, the least of the others, and the most."""
    own = [bar for bar in bars if bar.row.contest == contest]
    ours = next((bar for bar in own if bar.row.is_ours), None)
    others = sorted(
        (bar for bar in own if not bar.row.entrant.subject.startswith(OURS)), key=lambda bar: bar.whole.median
    )
    told = [bar for bar in (ours, *others[:1], *others[1:][-1:]) if bar is not None]
    return f"over {format_duration(contest.rtt_ns)} " + ", ".join(
        f"{_CALLED.get(subject := bar.row.entrant.subject) or labelled(subject)} {text(bar.whole, spread=False)} {unit}"
        for bar in told
    )


def _figures(task: str) -> str:
    """Return the figures of the paper that a task is measured for, in words."""
    numbers = [str(figure.number) for figure in FIGURES if task in {one.name for one in (*figure.tasks, *figure.real)}]
    return f"figure{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"


def _called(row: Standing) -> str:
    return _CALLED.get(row.entrant.subject) or named(row)


def _method(row: Standing) -> str:
    methods = [method_words(one.method) for run in row.runs if run.energy is not None for one in run.energy.hosts]
    return ", ".join(dict.fromkeys(methods))


def _draw(contests: Sequence[Contest], bars: Sequence[_Bar], axis: str, chosen: Sheet, title: str) -> Any:
    names = list(dict.fromkeys(_called(bar.row) for bar in bars))
    signs = len(names) + any(bar.rest is not None for bar in bars)
    lines = -(-signs // (2 if chosen is NARROW else 4))
    figure, axes = blank_figure(chosen.width, _HEIGHT + _LEGEND_LINE * lines, title=title, font=chosen.font)
    height = figure.get_figheight()
    axes.set_ylim(0, max(bar.whole.most for bar in bars) * _ABOVE)
    width = _GROUP / len(names)
    for place, contest in enumerate(contests):
        for bar in (bar for bar in bars if bar.row.contest == contest):
            number_of = names.index(_called(bar.row))
            middle = place - _GROUP / 2 + width * (number_of + 0.5)
            _one(axes, middle, width, bar, font=0.0 if chosen is NARROW else chosen.font)
    for name in names:
        row = next(bar.row for bar in bars if _called(bar.row) == name)
        axes.bar([0], [0], color=_fill(row), alpha=_alpha(row), label=name)
    if any(bar.rest is not None for bar in bars):
        axes.plot([], [], color=INK, linewidth=1.0, label="energy at rest")
    axes.set_xlim(-0.5, len(contests) - 0.5)
    axes.set_xticks(range(len(contests)), [format_duration(contest.rtt_ns) for contest in contests])
    axes.set_xlabel("round trip")
    axes.set_ylabel(axis)
    dress(axes, chosen.font, grid="y")
    foot = 0.62 + _LEGEND_LINE * lines
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.5 / (height - foot - 0.4)),
        ncols=2 if chosen is NARROW else 4,
        fontsize=chosen.font - 1,
        frameon=False,
        labelcolor=INK,
    )
    left = 0.62 / chosen.width
    figure.subplots_adjust(left=left, right=0.98, bottom=foot / height, top=1 - 0.4 / height)
    return figure


def _fill(row: Standing) -> str:
    return colour(row.entrant.subject)


def _alpha(row: Standing) -> float:
    """Return a lighter shade for more threads of the same system."""
    return {"2 workers": 0.7, "4 workers": 0.45}.get(row.entrant.setting, 1.0)


def _one(axes: Any, middle: float, width: float, bar: _Bar, *, font: float) -> None:
    of = bar.whole
    axes.bar([middle], [of.median], 0.92 * width, color=_fill(bar.row), alpha=_alpha(bar.row), zorder=2)
    if bar.rest is not None:
        axes.hlines(bar.rest.median, middle - 0.46 * width, middle + 0.46 * width, color=INK, linewidth=1.0, zorder=3)
    if of.bound:
        axes.plot([middle], [of.median], "^", markersize=5, markerfacecolor="none", color=INK, zorder=4)
    elif of.most > of.least:
        axes.vlines(middle, of.least, of.most, color=INK, linewidth=1.0, zorder=3)
    if font:
        axes.annotate(
            number(of.median),
            (middle, of.most),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            rotation=90,
            fontsize=font - 2,
            color=INK,
        )
