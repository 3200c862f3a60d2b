"""The claims of figure 11: the same loss at each step, reached sooner.

The yardstick of "the same" is the distance between trainings by one reader with different seeds. At
the same seed, two readers differ in the order of records only, which should move a curve no further
than another seed does. Records that are lost, badly mixed or have wrong labels move it further.
"""

from collections.abc import Sequence
from typing import Final

from emlio.units import format_duration
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import Value, number, spread
from emlio_bench.paper.curves import LEVEL, LossCurve, curves_of, distance, wander
from emlio_bench.paper.figures import LEARNED_RTT_NS, OURS, Subject
from emlio_bench.race.report.check import Check, Requirement

__all__ = ["NOT_RUN", "loss_claims"]

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
