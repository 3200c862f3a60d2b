"""The loss of each step of a training, and the comparison of two trainings.

Readers give the records in different orders, so two trainings agree on average and not step by step.
Every comparison is therefore of smoothed curves: means over the last tenth of all steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations
from typing import Final

from emlio.errors import ConfigError
from emlio.units import format_duration
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.report import Table
from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import Value, number, spread, text
from emlio_bench.paper.figures import LEARNED_RTT_NS, OURS, Subject
from emlio_bench.race.report.check import Check, Requirement
from emlio_bench.race.report.standing import is_wrong

__all__ = [
    "GUESS",
    "LEVEL",
    "NOT_RUN",
    "LossCurve",
    "curves_of",
    "distance",
    "loss_claims",
    "losses_table",
    "steps_of",
    "wander",
]

GUESS: Final = math.log(10)
"""The loss of a model that holds each of the ten digits for equally probable, in nats."""

LEVEL: Final = GUESS / 2
"""The loss whose time is compared."""

_PARTS: Final = (0.1, 0.25, 0.5, 0.75, 1.0)
_SMOOTHED: Final = 10
"""A smoothed loss is the mean over this part of all steps."""


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """The losses of one training.

    Attributes:
        subject: the system that read the records, and its setting.
        round: round of the run, from which the seed follows.
        steps: number of steps of the whole training; a run that was cut has fewer losses.
        losses: loss of each step, before its update, in nats.
        seconds: time from before the loader's constructor to the end of each step.
    """

    subject: Subject
    round: int
    steps: int
    losses: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.losses or len(self.losses) != len(self.seconds):
            raise ConfigError(
                f"a training must have a time for each of its losses, got {len(self.losses)} and {len(self.seconds)}"
            )
        if len(self.losses) > self.steps:
            raise ConfigError(
                f"a training of {self.steps} steps must have at most as many losses, got {len(self.losses)}"
            )

    @property
    def window(self) -> int:
        """Number of steps of a smoothed loss."""
        return max(self.steps // _SMOOTHED, 1)

    @cached_property
    def smoothed(self) -> tuple[float, ...]:
        """Mean loss of each step and the steps before it; of fewer at the beginning."""
        sums = [0.0, *accumulate(self.losses)]
        width = self.window
        return tuple(
            (sums[after] - sums[max(after - width, 0)]) / min(after, width) for after in range(1, len(self.losses) + 1)
        )

    @property
    def first(self) -> float:
        """Mean loss of the first steps."""
        return self.smoothed[min(self.window, len(self.losses)) - 1]

    @property
    def last(self) -> float:
        """Mean loss of the last steps."""
        return self.smoothed[-1]

    @property
    def learned(self) -> bool:
        """True if the loss halved."""
        return self.last < self.first / 2

    @property
    def cut(self) -> bool:
        """True if the training did not come to its end."""
        return len(self.losses) < self.steps

    @property
    def ended(self) -> Value:
        """Seconds to the end of the last step; a bound if the run was cut before."""
        return Value(value=self.seconds[-1], beyond=">" if self.cut else "")

    def reached(self, level: float = LEVEL) -> Value:
        """Return the seconds to a smoothed loss; a bound if the training ended above it."""
        for place in range(self.window - 1, len(self.losses)):
            if self.smoothed[place] <= level:
                return Value(value=self.seconds[place])
        return Value(value=self.seconds[-1], beyond=">")


def curves_of(race: Results, contest: Contest) -> tuple[LossCurve, ...]:
    """Return the trainings of a contest that lost and repeated nothing, in the order of entrants and rounds."""
    order = [(entrant.subject, entrant.setting) for entrant in race.entrants]
    found = [
        LossCurve(
            subject=run.who,
            round=run.round,
            steps=steps_of(contest),
            losses=run.series["loss"],
            seconds=run.series["seconds"],
        )
        for run in race.runs
        if run.scenario == contest.name and run.failure is None and run.series and not is_wrong(run)
    ]
    return tuple(sorted(found, key=lambda curve: (order.index(curve.subject), curve.round)))


def steps_of(contest: Contest) -> int:
    """Return the number of steps of a whole training."""
    return -(-contest.corpus.records // contest.batch)


def distance(one: LossCurve, other: LossCurve) -> float:
    """Return the mean distance of two smoothed curves, in nats, over the steps that both have."""
    pairs = list(zip(one.smoothed, other.smoothed, strict=False))
    return sum(abs(mine - its) for mine, its in pairs) / len(pairs)


def wander(curves: Sequence[LossCurve]) -> float | None:
    """Return the mean distance of two trainings by the same reader with different seeds; None with one seed."""
    found = [distance(one, other) for one, other in combinations(curves, 2) if one.subject == other.subject]
    return sum(found) / len(found) if found else None


def losses_table(race: Results, contest: Contest) -> Table | None:
    """Return the losses of a contest; None if no model was trained."""
    curves, steps = curves_of(race, contest), steps_of(contest)
    if not curves:
        return None
    places = sorted({max(round(part * steps), 1) for part in _PARTS})
    rows: list[tuple[str, ...]] = []
    for subject in dict.fromkeys(curve.subject for curve in curves):
        own = [curve for curve in curves if curve.subject == subject]
        at = ([curve.smoothed[place - 1] for curve in own if len(curve.losses) >= place] for place in places)
        losses = (text(spread(found)) if found else "-" for found in at)
        reached = text(spread([curve.reached() for curve in own]))
        rows.append((*subject, *losses, reached, text(spread([curve.ended for curve in own]))))
    return Table(
        title=f"loss at the same steps, in nats (a guess has {GUESS:.2f})",
        header=(
            "system",
            "setting",
            *(f"step {place:,}" for place in places),
            f"seconds to {LEVEL:.2f}",
            "seconds to the end",
        ),
        rows=tuple(rows),
        names=2,
    )


NOT_RUN: Final = "it was not measured"
"""The reason of a claim without runs, or its beginning."""

_SHARDS: Final[Subject] = ("dali-tfrecord", "default")
_MOST: Final = 2.0
_SOONER: Final = 1.1


def loss_claims(race: Results) -> tuple[Check, ...]:
    """Return the claims, also where nothing was measured."""
    contest = next((one for one in race.contests if one.train), None)
    where = format_duration(LEARNED_RTT_NS if contest is None else contest.rtt_ns)
    same = Requirement(
        name="the same loss per step",
        words=(
            f"training over {where}: at the same step, the losses of a model fed by EMLIO and by DALI differ at most "
            f"{_MOST:g} times as much as those of two seeds (the paper: the same convergence)"
        ),
        most=_MOST,
    )
    sooner = Requirement(
        name="the loss reached sooner",
        words=(
            f"training over {where}: to a loss of {LEVEL:.2f}, half of that of a guess, DALI over a remote folder takes "
            f"{_SOONER:g} times as long as EMLIO, or longer (the paper: EMLIO is earlier, its numbers are not known here)"
        ),
        least=_SOONER,
    )
    curves = () if contest is None else curves_of(race, contest)
    pairs = _pairs(curves)
    if contest is None or not pairs:
        return same.unknown(NOT_RUN), sooner.unknown(NOT_RUN)
    if not any(curve.learned for curve in curves):
        why = "the model did not learn: its loss did not halve in these steps"
        return same.unknown(why), sooner.unknown(why)
    return _same(same, curves, pairs, contest.name), _sooner(sooner, pairs, contest)


def _pairs(curves: Sequence[LossCurve]) -> list[tuple[LossCurve, LossCurve]]:
    """Return our training and DALI's with the same seed, for each seed."""
    theirs = {curve.round: curve for curve in curves if curve.subject == _SHARDS}
    return [(ours, theirs[ours.round]) for ours in curves if ours.subject == OURS and ours.round in theirs]


def _same(
    required: Requirement, curves: Sequence[LossCurve], pairs: Sequence[tuple[LossCurve, LossCurve]], contest: str
) -> Check:
    apart = [distance(ours, theirs) for ours, theirs in pairs]
    compared = [curve for curve in curves if curve.subject in (OURS, _SHARDS)]
    seeds = wander(compared)
    told = f"{', '.join(map(number, apart))} nats apart"
    if any(curve.cut for curve in compared):
        return required.unknown(f"a training was cut, and losses wander most at first; the curves are {told}")
    if not seeds:
        return required.unknown(f"one seed is not enough; the two curves are {told}")
    ends = "; ".join(
        f"seed {ours.round + 1}: {number(ours.last)} beside {number(theirs.last)}" for ours, theirs in pairs
    )
    return required.check(
        spread([sum(apart) / len(apart) / seeds]),
        contest,
        note=f"{told} with the same seed, {number(seeds)} with another; last losses {ends}",
    )


def _sooner(required: Requirement, pairs: Sequence[tuple[LossCurve, LossCurve]], contest: Contest) -> Check:
    if contest.rtt_ns < LEARNED_RTT_NS:
        return required.unknown(f"{NOT_RUN} at {format_duration(LEARNED_RTT_NS)} or more")
    reached = [(ours.reached(), theirs.reached()) for ours, theirs in pairs]
    note = ", ".join(f"{_seconds(theirs)} beside {_seconds(ours)}" for ours, theirs in reached)
    ratios = [found for ours, theirs in reached if (found := _ratio(ours, theirs)) is not None]
    if not ratios:
        return required.unknown(f"no training came to a loss of {LEVEL:.2f}")
    if len({one.beyond for one in ratios if one.beyond}) > 1:
        return required.unknown(f"the seeds disagree on who came to a loss of {LEVEL:.2f}: {note}")
    return required.check(spread(ratios), contest.name, note=note)


def _ratio(ours: Value, theirs: Value) -> Value | None:
    """Return DALI's time for each second of ours; a bound if one never came there, None if both."""
    if ours.beyond and theirs.beyond:
        return None
    return Value(value=theirs.value / ours.value, beyond="<" if ours.beyond else theirs.beyond)


def _seconds(of: Value) -> str:
    return f"{of.beyond} {number(of.value)} s".lstrip()
