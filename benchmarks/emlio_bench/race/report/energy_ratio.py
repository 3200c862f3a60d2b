"""The energy of an epoch as a multiple of ours, with its error, and the two terms of the difference.

A loader that waits keeps two hosts at rest for longer: the first term is the time that it takes
more, at the power of rest. The second is the work that it does more. An estimate may weigh the two
wrongly, each by its stated error; a common error of both cancels in the ratio.

Covers: the ratio, its range, the terms, their text. Pure. Does not cover: the energy of each host
(emlio_bench.race.report.energy_table).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from emlio_bench.harness.spread import Spread, number, spread, text
from emlio_bench.race.outcome import HostEnergy, Run
from emlio_bench.race.report.standing import Standing

__all__ = ["EnergyRatio", "energy_ratio"]

_MOST_ERROR: Final = 0.99
_ERROR: Final = re.compile(r"±(\d+(?:\.\d+)?) ?%")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRatio:
    """The energy of an epoch of one system beside that of another.

    Attributes:
        times: the ratio of all energy; its extremes are what the rounds and the error of the method
            allow.
        rest_joules: energy at rest that the first uses more than the second.
        work_joules: energy above rest that the first uses more than the second.
    """

    times: Spread
    rest_joules: float
    work_joules: float

    @property
    def text(self) -> str:
        """The ratio with its range, and the terms."""
        terms = f"{number(self.rest_joules)} {'-' if self.work_joules < 0 else '+'} {number(abs(self.work_joules))} J"
        return f"{text(self.times)}: {terms}"


def energy_ratio(upper: Standing, lower: Standing) -> EnergyRatio | None:
    """Return the energy of an epoch of `upper` as a multiple of that of `lower`.

    None if one of them is unknown, or `lower` was cut. If `upper` was cut, the ratio is a bound.
    """
    above, below = _runs(upper), _runs(lower)
    if not above or not below or any(run.cut for run in below):
        return None
    pairs = [(_terms(one), _terms(other)) for one in above for other in below]
    if not all(sum(other) for _, other in pairs):
        return None
    error = min(max(_error(run) for run in (*above, *below)), _MOST_ERROR)
    weights = (1.0, (1 + error) / (1 - error), (1 - error) / (1 + error))
    found = [_times(one, other, weight) for one, other in pairs for weight in weights]
    middle = [_middle(above, part) - _middle(below, part) for part in (_rest, _work)]
    ratio = _middle(above, _all) / _middle(below, _all)
    bound = any(run.cut for run in above)
    return EnergyRatio(
        times=Spread(
            median=ratio,
            least=min(found),
            most=max(found),
            beyond=">" if bound else "",
            bound=bound,
            count=min(len(above), len(below)),
        ),
        rest_joules=middle[0],
        work_joules=middle[1],
    )


def _runs(row: Standing) -> list[Run]:
    return [run for run in row.runs if run.energy is not None and run.energy.hosts and run.epochs]


def _terms(run: Run) -> tuple[float, float]:
    return _rest(run), _work(run)


def _rest(run: Run) -> float:
    return _an_epoch(run, lambda one: one.idle_joules)


def _work(run: Run) -> float:
    return _an_epoch(run, lambda one: one.active_joules)


def _all(run: Run) -> float:
    return _rest(run) + _work(run)


def _an_epoch(run: Run, part: Callable[[HostEnergy], float]) -> float:
    return 0.0 if run.energy is None else sum(map(part, run.energy.hosts)) / len(run.epochs)


def _middle(runs: list[Run], part: Callable[[Run], float]) -> float:
    return spread([part(run) for run in runs]).median


def _times(one: tuple[float, float], other: tuple[float, float], weight: float) -> float:
    """Return the ratio where energy above rest counts `weight` times as much as that at rest."""
    return (one[0] + weight * one[1]) / (other[0] + weight * other[1])


def _error(run: Run) -> float:
    """Return the largest relative error that the methods of a run state; 0 for a counter."""
    methods = [] if run.energy is None else [one.method for one in run.energy.hosts]
    return max((float(found[1]) / 100 for method in methods if (found := _ERROR.search(method))), default=0.0)
