"""A comparison of two jobs: whether their figures may be compared at all, ratios, and whether they differ."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log, sqrt
from statistics import fmean, stdev
from typing import Final

from emlio.energy.job.document import JobNode, Report
from emlio.energy.job.epoch_energy import DOMAINS, EpochEnergy, Role
from emlio.energy.report.table import ABSENT, TextTable, figure
from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.total import Total, sum_of
from emlio.errors import ConfigError

__all__ = ["Comparison", "Figure", "Ratio", "compare_jobs", "comparison_text"]

_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""Student's t of 1 to 20 degrees of freedom, beyond which 5% lie on both sides. The last one serves for more."""

_MOST_IN_JOULES: Final = 1e4
"""A row whose largest value is smaller is in joules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A value of one epoch and how far off it may be; `error` is 0 where nothing is estimated."""

    value: float
    error: float = 0.0


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
    def differs(self) -> bool | None:
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
        logarithms = [log(b.value / a.value) if a.value > 0 < b.value else 0.0 for a, b in known]
        return not least <= 0 <= most and not _is_chance(logarithms)


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


_Pair = tuple[EpochEnergy, EpochEnergy]
_Measure = Callable[[EpochEnergy], Figure | None]


def compare_jobs(a: Report, b: Report) -> Comparison:
    """Compare two jobs, epoch by epoch.

    Raises:
        ConfigError: they have no epoch in common.
    """
    others = {one.title: one for one in b.whole}
    pairs = [(one, others[one.title]) for one in a.whole if one.title in others]
    if not pairs:
        known = [", ".join(one.title for one in job.whole) or "none" for job in (a, b)]
        raise ConfigError(f"two jobs must have complete epochs in common to be compared, got {known[0]} and {known[1]}")
    ratios = [_ratio_of(name, measure, pairs) for name, measure in _MEASURES.items()]
    common = {left.title for left, _ in pairs}
    return Comparison(
        titles=tuple(left.title for left, _ in pairs),
        ratios=tuple(one for one in ratios if any((*one.a, *one.b))),
        differences=tuple(dict.fromkeys(_differences(a, b, pairs))),
        remarks=(*_remarks(a, b), *_left_out("A", a, common), *_left_out("B", b, common)),
        estimated=a.estimated or b.estimated,
    )


# ---- figures --------------------------------------------------------------------------------------------------------


def _figure(total: Total, per: float = 1.0) -> Figure | None:
    if total.joules is None or not per:
        return None
    return Figure(value=total.joules / per, error=total.error_joules / per)


def _of_domain(domain: Domain, epoch: EpochEnergy) -> Figure | None:
    return _figure(sum_of(node.domains[domain] for node in epoch.nodes))


def _of_role(role: Role, epoch: EpochEnergy) -> Figure | None:
    return _figure(sum_of(node.total for node in epoch.with_role(role)))


_ENERGIES: Final[dict[str, _Measure]] = {
    **{domain.upper(): partial(_of_domain, domain) for domain in DOMAINS},
    **{role.value: partial(_of_role, role) for role in Role},
    "total": lambda epoch: _figure(epoch.total),
}
_MEASURES: Final[dict[str, _Measure]] = {
    "seconds": lambda epoch: Figure(value=epoch.seconds),
    **_ENERGIES,
    "mean W": lambda epoch: _figure(epoch.total, epoch.seconds),
    "J/sample": lambda epoch: _figure(epoch.total, epoch.samples),
}
"""In the order of the tables' rows. The total is of all nodes."""


def _ratio_of(name: str, measure: _Measure, pairs: Sequence[_Pair]) -> Ratio:
    a, b = [measure(left) for left, _ in pairs], [measure(right) for _, right in pairs]
    if name not in _ENERGIES:
        return Ratio(name=name, a=tuple(a), b=tuple(b))
    largest = max((abs(one.value) for one in (*a, *b) if one is not None), default=0.0)
    unit, per = ("J", 1.0) if largest < _MOST_IN_JOULES else ("kJ", 1e3)
    return Ratio(
        name=f"{name} {unit}",
        a=tuple(None if one is None else Figure(value=one.value / per, error=one.error / per) for one in a),
        b=tuple(None if one is None else Figure(value=one.value / per, error=one.error / per) for one in b),
    )


def _is_chance(differences: Sequence[float]) -> bool:
    """Return whether the 95% interval of the mean of differences includes 0; False if there is one difference."""
    if len(differences) < 2:
        return False
    quantile = _STUDENT[min(len(differences) - 2, len(_STUDENT) - 1)]
    return abs(fmean(differences)) <= quantile * stdev(differences) / sqrt(len(differences))


def _mean(figures: Sequence[Figure | None]) -> Figure | None:
    known = [one for one in figures if one is not None]
    if not known or len(known) < len(figures):
        return None
    return Figure(value=fmean(one.value for one in known), error=fmean(one.error for one in known))


def _ratio(a: Figure | None, b: Figure | None) -> float | None:
    return b.value / a.value if a is not None and a.value and b is not None else None


# ---- whether they may be compared -----------------------------------------------------------------------------------


def _differences(a: Report, b: Report, pairs: Sequence[_Pair]) -> Iterable[str]:
    for role in Role:
        ours, theirs = a.nodes(role), b.nodes(role)
        if len(ours) != len(theirs):
            yield f"{role} nodes: {len(ours)} and {len(theirs)}"
        yield from _differ(f"{role} nodes' processors", map(_processor, ours), map(_processor, theirs))
        yield from _differ(f"how {role} nodes were counted", map(_ways, ours), map(_ways, theirs))
    if a.estimated or b.estimated:
        yield from _differ(
            "estimates are comparable only on one machine, but the nodes differ",
            map(_machine, a.job.nodes),
            map(_machine, b.job.nodes),
        )
        yield from _differ("the estimates' models", map(_models, a.job.nodes), map(_models, b.job.nodes))
    yield from _differ("datasets", a.job.datasets, b.job.datasets)
    for left, right in pairs:
        if left.samples != right.samples:
            yield f"samples of {left.title}: {left.samples:,} and {right.samples:,}"
        yield from _differ(f"parts not counted in {left.title}", _lacks(left), _lacks(right))
        for name, one in (("A", left), ("B", right)):
            yield from (f"{name}, {one.title}: {reason}" for reason in one.impossible)
            if one.total.joules is None:
                yield f"{name}, {one.title}: its energy is not known"


def _differ(what: str, ours: Iterable[str], theirs: Iterable[str]) -> list[str]:
    left, right = sorted(ours), sorted(theirs)
    return [] if left == right else [f"{what}: {'; '.join(left) or 'none'} and {'; '.join(right) or 'none'}"]


def _lacks(epoch: EpochEnergy) -> list[str]:
    """Return the parts missing from the total, without names of nodes, which may differ between jobs."""
    return [f"{one.partition(' of ')[0]} of a {node.role} node" for node in epoch.nodes for one in node.total.lacks]


def _processor(node: JobNode) -> str:
    return f"{node.processor or 'unknown'}{'' if node.cores is None else f', {node.cores} cores'}"


def _ways(node: JobNode) -> str:
    ways = sorted(f"{one.domain} {one.method} by {one.source}" for one in node.devices if one.adds)
    return ", ".join(ways) or "nothing"


def _machine(node: JobNode) -> str:
    memory = "" if node.memory_bytes is None else f" with {node.memory_bytes:,} bytes"
    return f"{node.node} ({node.role}){memory}"


def _models(node: JobNode) -> str:
    notes = sorted(f"{one.name}: {one.note}" for one in node.devices if one.method is Method.ESTIMATED)
    return f"{node.role}: {', '.join(notes) or 'none'}"


def _remarks(a: Report, b: Report) -> list[str]:
    """Return the differences in the loaders' settings."""
    told, other = a.job.settings, b.job.settings
    return [
        f"differs in {name}: {told.get(name, '-')} and {other.get(name, '-')}"
        for name in dict.fromkeys([*told, *other])
        if told.get(name) != other.get(name)
    ]


def _left_out(name: str, job: Report, common: set[str]) -> list[str]:
    alone = ", ".join(one.title for one in job.whole if one.title not in common)
    reasons = {"incomplete": ", ".join(job.job.partial), "not in the other job": alone}
    return [f"left out of {name}, {reason}: {titles}" for reason, titles in reasons.items() if titles]


# ---- for people -----------------------------------------------------------------------------------------------------

_SHOWN: Final = ("seconds", "total J", "total kJ", "J/sample")
"""The measures shown epoch by epoch; a table of all would be too wide to read."""


def comparison_text(found: Comparison, a: str, b: str) -> str:
    """Return the report for a terminal.

    Args:
        found: the comparison.
        a: name of the first job.
        b: name of the second job.
    """
    parts = [f"A: {a}\nB: {b}"]
    if found.differences:
        parts.append("\n".join(["These jobs are not comparable:", *(f"  {one}" for one in found.differences)]))
    if found.remarks:
        parts.append("\n".join(found.remarks))
    many = len(found.titles)
    means = TextTable(
        title=f"in the mean of {many} epochs" if many > 1 else found.titles[0],
        header=("", "A", "B", "B : A", "epochs' least", "most", "significant"),
        rows=tuple(_mean_row(one, found) for one in found.ratios),
    )
    parts.append(means.text())
    if alike := [one.name for one in found.ratios if one.differs is False]:
        parts.append(
            f"A and B do not differ significantly in {', '.join(alike)}: what they may be off overlaps, or the differences of "
            "single epochs vary too much. More epochs may tell."
        )
    parts.extend(_by_epoch(found, one).text() for one in found.ratios if one.name in _SHOWN and many > 1)
    if found.estimated:
        parts.append(
            "~ is an estimate, ± how far its model may be off. On one machine the ratio of two estimates is better known "
            "than their joules, since part of that error is in both, but how large a part is not known."
        )
    return "\n\n".join(parts)


def _mean_row(one: Ratio, found: Comparison) -> tuple[str, ...]:
    a, b = (_cell(mean, one, found) for mean in one.means)
    least, most = map(figure, one.spread or (None, None))
    differs = ABSENT if one.differs is None else "yes" if one.differs else "no"
    return one.name, a, b, figure(one.ratio), least, most, differs


def _by_epoch(found: Comparison, one: Ratio) -> TextTable:
    rows = [
        (title, _cell(a, one, found), _cell(b, one, found), figure(ratio))
        for title, a, b, ratio in zip(found.titles, one.a, one.b, one.ratios, strict=True)
    ]
    return TextTable(title=one.name, header=("", "A", "B", "B : A"), rows=tuple(rows))


def _cell(of: Figure | None, one: Ratio, found: Comparison) -> str:
    if of is None:
        return ABSENT
    error = f" ±{of.error / abs(of.value):.0%}" if of.error and of.value else ""
    return f"{'~' if found.estimated and one.name != 'seconds' else ''}{figure(of.value)}{error}"
