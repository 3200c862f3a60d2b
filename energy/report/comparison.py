"""A comparison of two jobs.

Covers: which of their epochs correspond, whether their figures may be compared at all, ratios,
their spread, whether two jobs can be told apart. Pure. Does not cover: reading the reports
(emlio.energy.report.job_summary), tables for people (emlio.energy.report.comparison_report).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log, sqrt
from statistics import fmean, stdev

from emlio.energy.report.job_summary import EpochSummary, JobSummary, NodeSummary
from emlio.energy.values.domain import Method
from emlio.errors import ConfigError

__all__ = ["MEASURES", "Comparison", "Figure", "Measure", "Ratio", "compare_jobs"]


_J_OF_KJ = 1e3
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""Student's t of 1 to 20 degrees of freedom, beyond which 5% lie on both sides. The last one serves for more."""

_MOST_IN_JOULES = 10 * _J_OF_KJ
"""A row whose largest value is smaller is in joules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A value of one epoch and how far off it may be; `error` is 0 where nothing is estimated."""

    value: float
    error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure of an epoch.

    Attributes:
        name: with its unit, unless it is an energy.
        of: returns the figure of an epoch; None where it is unknown.
        is_energy: whether it is in joules; then its unit depends on how large it is.
    """

    name: str
    of: Callable[[EpochSummary], Figure | None]
    is_energy: bool = False


def _energy(domain: str, role: str | None = None) -> Callable[[EpochSummary], Figure | None]:
    def of(epoch: EpochSummary) -> Figure | None:
        joules = epoch.joules(domain, role)
        return None if joules is None else Figure(value=joules, error=epoch.error_joules(domain, role))

    return of


def _total(epoch: EpochSummary) -> Figure | None:
    joules = epoch.total.joules
    return None if joules is None else Figure(value=joules, error=epoch.total.error_joules)


def _total_per(divisor: Callable[[EpochSummary], float]) -> Callable[[EpochSummary], Figure | None]:
    def of(epoch: EpochSummary) -> Figure | None:
        total, by = _total(epoch), divisor(epoch)
        return None if total is None or not by else Figure(value=total.value / by, error=total.error / by)

    return of


MEASURES = (
    Measure(name="seconds", of=lambda epoch: Figure(value=epoch.seconds)),
    Measure(name="CPU", of=_energy("cpu"), is_energy=True),
    Measure(name="DRAM", of=_energy("dram"), is_energy=True),
    Measure(name="GPU", of=_energy("gpu"), is_energy=True),
    Measure(name="compute", of=_energy("", "compute"), is_energy=True),
    Measure(name="storage", of=_energy("", "storage"), is_energy=True),
    Measure(name="total", of=_total, is_energy=True),
    Measure(name="mean W", of=_total_per(lambda epoch: epoch.seconds)),
    Measure(name="J/sample", of=_total_per(lambda epoch: epoch.samples)),
)
"""In the order of the tables' rows. The total is of all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One measure of both jobs.

    Attributes:
        name: of the measure, with its unit.
        a: of each epoch of the first job; None where it is unknown.
        b: of the corresponding epochs of the second job.
    """

    name: str
    a: tuple[Figure | None, ...]
    b: tuple[Figure | None, ...]

    @property
    def means(self) -> tuple[Figure | None, Figure | None]:
        """The means over all epochs; None where a value is unknown.

        An estimate's error is that of its model, in each epoch alike: a mean has the mean error.
        """
        return _mean(self.a), _mean(self.b)

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """The second job's value divided by the first's, epoch by epoch."""
        return tuple(_ratio(one, other) for one, other in zip(self.a, self.b, strict=True))

    @property
    def ratio(self) -> float | None:
        """The ratio of the means."""
        return _ratio(*self.means)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the greatest of the epochs' ratios; None with fewer than two."""
        known = [one for one in self.ratios if one is not None]
        return (min(known), max(known)) if len(known) > 1 else None

    @property
    def told_apart(self) -> bool | None:
        """True if the two jobs differ by more than their errors.

        They do not if the errors of an epoch's two values overlap, or if the second job has more in
        one epoch and less in another, or if the 95% interval of the epochs' ratios, by Student's t
        of their logarithms, includes 1. Without the last, half of all comparisons of equal jobs over
        two epochs would find a difference. None where no error is known: of a single epoch without
        estimates.
        """
        known = [(a, b) for a, b in zip(self.a, self.b, strict=True) if a is not None and b is not None]
        if not known or (len(known) == 1 and not any(one.error for one in known[0])):
            return None
        least = min(b.value - b.error - a.value - a.error for a, b in known)
        most = max(b.value + b.error - a.value + a.error for a, b in known)
        return not least <= 0 <= most and not _is_chance(
            [log(b.value / a.value) if a.value > 0 < b.value else 0.0 for a, b in known]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        titles: of the epochs that both jobs have, in order.
        ratios: one for each measure that is known of either job.
        differences: why the figures must not be compared; empty where they may.
        remarks: other differences, and what was left out. The intended change may be among them.
        estimated: whether some of the figures are estimates.
    """

    titles: tuple[str, ...]
    ratios: tuple[Ratio, ...]
    differences: tuple[str, ...]
    remarks: tuple[str, ...]
    estimated: bool


def compare_jobs(a: JobSummary, b: JobSummary) -> Comparison:
    """Compare two jobs, epoch by epoch.

    Raises:
        ConfigError: they have no epoch in common.
    """
    pairs = _pairs(a, b)
    if not pairs:
        raise ConfigError(
            f"two jobs must have complete epochs in common to be compared, got {_titles(a.whole)} and "
            f"{_titles(b.whole)}"
        )
    ratios = [_measured(one, pairs) for one in MEASURES]
    common = {left.title for left, _ in pairs}
    return Comparison(
        titles=tuple(left.title for left, _ in pairs),
        ratios=tuple(one for one in ratios if _is_known(one)),
        differences=tuple(dict.fromkeys(_differences(a, b, pairs))),
        remarks=(*_remarks(a, b), *_left_out("A", a, common), *_left_out("B", b, common)),
        estimated=a.estimated or b.estimated,
    )


def _measured(measure: Measure, pairs: Sequence[tuple[EpochSummary, EpochSummary]]) -> Ratio:
    a, b = [measure.of(left) for left, _ in pairs], [measure.of(right) for _, right in pairs]
    if not measure.is_energy:
        return Ratio(name=measure.name, a=tuple(a), b=tuple(b))
    largest = max((abs(one.value) for one in (*a, *b) if one is not None), default=0.0)
    unit, per = ("J", 1.0) if largest < _MOST_IN_JOULES else ("kJ", _J_OF_KJ)
    return Ratio(
        name=f"{measure.name} {unit}",
        a=tuple(_divided(one, per) for one in a),
        b=tuple(_divided(one, per) for one in b),
    )


def _divided(one: Figure | None, per: float) -> Figure | None:
    return None if one is None else Figure(value=one.value / per, error=one.error / per)


def _pairs(a: JobSummary, b: JobSummary) -> list[tuple[EpochSummary, EpochSummary]]:
    others = {one.title: one for one in b.whole}
    return [(one, others[one.title]) for one in a.whole if one.title in others]


def _differences(a: JobSummary, b: JobSummary, pairs: Sequence[tuple[EpochSummary, EpochSummary]]) -> Iterable[str]:
    for role in ("compute", "storage"):
        ours, theirs = a.with_role(role), b.with_role(role)
        if len(ours) != len(theirs):
            yield f"{role} nodes: {len(ours)} and {len(theirs)}"
        yield from _differ(f"{role} nodes' processors", map(_processor, ours), map(_processor, theirs))
        yield from _differ(f"how {role} nodes were counted", map(_ways, ours), map(_ways, theirs))
    if a.estimated or b.estimated:
        yield from _differ(
            "estimates are comparable only on one machine, but the nodes differ",
            map(_machine, a.nodes),
            map(_machine, b.nodes),
        )
        yield from _differ("the estimates' models", map(_models, a.nodes), map(_models, b.nodes))
    yield from _differ("datasets", a.datasets, b.datasets)
    for left, right in pairs:
        if left.samples != right.samples:
            yield f"samples of {left.title}: {left.samples:,} and {right.samples:,}"
        yield from _differ(f"parts not counted in {left.title}", left.lacks, right.lacks)
        for name, one in (("A", left), ("B", right)):
            yield from (f"{name}, {one.title}: {reason}" for reason in one.impossible)
            if one.total.joules is None:
                yield f"{name}, {one.title}: its energy is not known"


def _remarks(a: JobSummary, b: JobSummary) -> list[str]:
    """Return the differences in the loaders' settings."""
    told, other = dict(a.settings), dict(b.settings)
    return [
        f"differs in {name}: {told.get(name, '-')} and {other.get(name, '-')}"
        for name in dict.fromkeys([*told, *other])
        if told.get(name) != other.get(name)
    ]


def _left_out(name: str, job: JobSummary, common: set[str]) -> list[str]:
    partial = [one.title for one in job.epochs if one not in job.whole]
    alone = [one.title for one in job.whole if one.title not in common]
    return [
        *([f"left out of {name}, incomplete: {', '.join(partial)}"] if partial else []),
        *([f"left out of {name}, not in the other job: {', '.join(alone)}"] if alone else []),
    ]


def _differ(what: str, ours: Iterable[str], theirs: Iterable[str]) -> list[str]:
    left, right = sorted(ours), sorted(theirs)
    return [] if left == right else [f"{what}: {'; '.join(left) or 'none'} and {'; '.join(right) or 'none'}"]


def _processor(node: NodeSummary) -> str:
    cores = "" if node.cores is None else f", {node.cores} cores"
    return f"{node.processor or 'unknown'}{cores}"


def _ways(node: NodeSummary) -> str:
    return (
        ", ".join(sorted(f"{one.domain} {one.method} by {one.source}" for one in node.devices if one.adds)) or "nothing"
    )


def _machine(node: NodeSummary) -> str:
    memory = "" if node.memory_bytes is None else f" with {node.memory_bytes:,} bytes"
    return f"{node.node} ({node.role}){memory}"


def _models(node: NodeSummary) -> str:
    notes = [f"{one.name}: {one.note}" for one in node.devices if one.method == Method.ESTIMATED]
    return f"{node.role}: {', '.join(sorted(notes)) or 'none'}"


def _titles(epochs: Sequence[EpochSummary]) -> str:
    return ", ".join(one.title for one in epochs) or "none"


def _is_known(ratio: Ratio) -> bool:
    return any(one is not None for one in (*ratio.a, *ratio.b))


def _is_chance(differences: Sequence[float]) -> bool:
    """Return whether the 95% interval of the mean of differences includes 0; False if there is one difference."""
    if len(differences) < 2:
        return False
    quantile = _STUDENT[len(differences) - 2] if len(differences) - 2 < len(_STUDENT) else _STUDENT[-1]
    return abs(fmean(differences)) <= quantile * stdev(differences) / sqrt(len(differences))


def _mean(figures: Sequence[Figure | None]) -> Figure | None:
    known = [one for one in figures if one is not None]
    if not known or len(known) < len(figures):
        return None
    return Figure(value=fmean(one.value for one in known), error=fmean(one.error for one in known))


def _ratio(a: Figure | None, b: Figure | None) -> float | None:
    return b.value / a.value if a is not None and a.value and b is not None else None
