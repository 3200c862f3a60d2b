"""The energy of an epoch as a multiple of ours, with its error, and the two terms of the difference.

A loader that waits keeps two hosts at rest for longer: the first term is the time that it takes
more, at the power of rest. The second is the work that it does more. An estimate may be wrong by its
stated error, for each host, part of a host and term apart, but then in the same way for both loaders.

Covers: the ratio, its range, the terms, their text. Pure. Does not cover: the energy of each host
(emlio_bench.race.report.energy_table).
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from emlio_bench.harness.spread import Spread, number, spread, text
from emlio_bench.race.outcome import HostEnergy, Run
from emlio_bench.race.report.quantity import is_wrong
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

    None if one of them is unknown, if not all runs have the same parts of the same hosts, or if
    `lower` was cut. If `upper` was cut, the ratio is a bound. Runs that lost or repeated records do
    not count.
    """
    above, below = _runs(upper), _runs(lower)
    if not above or not below or any(run.cut for run in below):
        return None
    if len({frozenset(_parts(run)) for run in (*above, *below)}) > 1:
        return None
    if not all(map(_all, below)):
        return None
    found = [times for one in above for other in below for times in _range(one, other)]
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
    return [
        run
        for run in row.runs
        if run.energy is not None and run.energy.hosts and run.epochs and not is_wrong(row.contest, run)
    ]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """Energy of one kind in an epoch of both loaders.

    Attributes:
        upper: joules of the first loader.
        lower: joules of the second.
        error: relative error of both, in the same direction.
    """

    upper: float
    lower: float
    error: float


def _range(one: Run, other: Run) -> tuple[float, float]:
    """Return the least and the greatest ratio that the errors of the methods allow.

    Where terms have a factor within bounds each, a ratio of their sums is extreme with each factor
    at one of its bounds: the upper for the terms with the highest ratios, or with the lowest.
    """
    terms = sorted(_terms(one, other), key=lambda term: term.upper / term.lower if term.lower else math.inf)
    found: list[float] = []
    for signs in ((1, -1), (-1, 1)):
        for place in range(len(terms) + 1):
            factors = [1 + term.error * signs[number >= place] for number, term in enumerate(terms)]
            upper, lower = (
                sum(factor * joules for factor, joules in zip(factors, of, strict=True))
                for of in ([term.upper for term in terms], [term.lower for term in terms])
            )
            if lower:
                found.append(upper / lower)
    return min(found), max(found)


def _terms(one: Run, other: Run) -> list[_Term]:
    above, below = _parts(one), _parts(other)
    return [
        _Term(
            upper=above[part][0],
            lower=below[part][0],
            error=max(above[part][1], below[part][1]),
        )
        for part in sorted(above)
    ]


def _parts(run: Run) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Return joules of an epoch and their error by host, part of the host, and term."""
    found: dict[tuple[str, str, str], tuple[float, float]] = {}
    for one in () if run.energy is None else run.energy.hosts:
        for term, joules in (("rest", one.idle_joules), ("work", one.active_joules)):
            found[one.host, one.domain, term] = (joules / len(run.epochs), _error(one.method))
    return found


def _error(method: str) -> float:
    """Return the relative error that a method states; 0 for a counter."""
    stated = _ERROR.search(method)
    return min(float(stated[1]) / 100, _MOST_ERROR) if stated else 0.0
