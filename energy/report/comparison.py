"""A comparison of two jobs: whether their figures may be compared, ratios, and whether they differ."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log, sqrt
from statistics import fmean, stdev
from typing import Final

from emlio.energy.job.document import JobNode, Report
from emlio.energy.job.epoch_energy import DOMAINS, EpochEnergy, Role
from emlio.energy.report.table import ABSENT, EnergyUnit, TextTable, figure, unit_of
from emlio.energy.values.device import Method
from emlio.energy.values.total import Total, sum_of
from emlio.errors import ConfigError

__all__ = ["Comparison", "Figure", "Measure", "compare_jobs", "comparison_text"]

_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""Student's t of 1 to 20 degrees of freedom, beyond which 5% lie on both sides. The last one serves for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A value of one epoch and its possible error, which is 0 where nothing is estimated."""

    value: float
    error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measure of both jobs: its name with its unit, and the figures of the epochs that both have."""

    name: str
    a: tuple[Figure, ...]
    b: tuple[Figure, ...]

    @property
    def ratios(self) -> list[float | None]:
        """The second job's value divided by the first's: of the means, then epoch by epoch."""
        pairs = [(_mean(self.a), _mean(self.b)), *zip(self.a, self.b, strict=True)]
        return [b.value / a.value if a.value else None for a, b in pairs]

    @property
    def differs(self) -> bool | None:
        """True if the two jobs differ by more than their errors.

        They do not if the errors of an epoch's two values overlap, or if the second job has more in
        one epoch and less in another, or if the 95% interval of the epochs' ratios, by Student's t
        of their logarithms, includes 1. Without the last, half of all comparisons of equal jobs over
        two epochs would find a difference. None where no error is known: of a single epoch without
        estimates.
        """
        pairs = list(zip(self.a, self.b, strict=True))
        if not pairs or (len(pairs) == 1 and not any(one.error for one in pairs[0])):
            return None
        least = min(b.value - b.error - a.value - a.error for a, b in pairs)
        most = max(b.value + b.error - a.value + a.error for a, b in pairs)
        logarithms = [log(b.value / a.value) if a.value > 0 < b.value else 0.0 for a, b in pairs]
        return not least <= 0 <= most and not _is_chance(logarithms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        titles: of the epochs that both jobs have, in order.
        measures: those that are known of both jobs.
        differences: why the figures must not be compared; empty where they may.
        remarks: other differences, and what was left out. The intended change may be among them.
        estimated: whether some of the figures are estimates.
    """

    titles: tuple[str, ...]
    measures: tuple[Measure, ...]
    differences: tuple[str, ...]
    remarks: tuple[str, ...]
    estimated: bool


_Pair = tuple[EpochEnergy, EpochEnergy]


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
    titles = tuple(left.title for left, _ in pairs)
    return Comparison(
        titles=titles,
        measures=tuple(_measures(pairs)),
        differences=tuple(dict.fromkeys(_differences(a, b, pairs))),
        remarks=(*_settings(a, b), *_left_out("A", a, titles), *_left_out("B", b, titles)),
        estimated=a.estimated or b.estimated,
    )


def _measures(pairs: Sequence[_Pair]) -> Iterable[Measure]:
    unit = unit_of(one.total for pair in pairs for one in pair)
    left, right = ([_figures(pair[side], unit) for pair in pairs] for side in (0, 1))
    for name in left[0]:
        a, b = (tuple(filter(None, (one[name] for one in side))) for side in (left, right))
        if len(a) == len(b) == len(pairs):
            yield Measure(name=name, a=a, b=b)


def _figures(epoch: EpochEnergy, unit: EnergyUnit) -> dict[str, Figure | None]:
    """Return an epoch's figures in the order of the table's rows."""
    energies = {
        **{domain.upper(): sum_of(node.domains[domain] for node in epoch.nodes) for domain in DOMAINS},
        **{role.value: sum_of(node.total for node in epoch.with_role(role)) for role in Role},
        "total": epoch.total,
    }
    return {
        "seconds": Figure(value=epoch.seconds),
        **{f"{name} {unit.name}": _figure(total, unit.joules) for name, total in energies.items()},
        "mean W": _figure(epoch.total, epoch.seconds),
        "J/sample": _figure(epoch.total, epoch.samples),
    }


def _figure(total: Total, per: float) -> Figure | None:
    if total.joules is None or not per:
        return None
    return Figure(value=total.joules / per, error=total.error_joules / per)


def _mean(figures: Sequence[Figure]) -> Figure:
    """Return the mean. An estimate's error is that of its model, in each epoch alike, so it does not shrink."""
    return Figure(value=fmean(one.value for one in figures), error=fmean(one.error for one in figures))


def _is_chance(differences: Sequence[float]) -> bool:
    """Return whether the 95% interval of the mean of differences includes 0; False if there is one difference."""
    if len(differences) < 2:
        return False
    quantile = _STUDENT[min(len(differences) - 2, len(_STUDENT) - 1)]
    return abs(fmean(differences)) <= quantile * stdev(differences) / sqrt(len(differences))


# ---- whether they may be compared -----------------------------------------------------------------------------------


def _differences(a: Report, b: Report, pairs: Sequence[_Pair]) -> Iterable[str]:
    estimated = a.estimated or b.estimated
    yield from _differ("nodes", *([_node(node, estimated) for node in job.job.nodes] for job in (a, b)))
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


def _node(node: JobNode, estimated: bool) -> str:
    """Describe a node so far as figures depend on it. Estimates are comparable on one machine only."""
    ways = sorted(
        f"{one.domain} {one.method} by {one.source}" + f" ({one.note})" * (one.method is Method.ESTIMATED)
        for one in node.devices
        if one.adds
    )
    cores = "" if node.cores is None else f", {node.cores} cores"
    machine = f"{node.node}, {node.memory_bytes} bytes, " if estimated else ""
    return f"{machine}{node.role}, {node.processor or 'unknown processor'}{cores}, {', '.join(ways) or 'not counted'}"


def _lacks(epoch: EpochEnergy) -> list[str]:
    """Return the parts missing from the total, without names of nodes, which may differ between jobs."""
    return [f"{one.partition(' of ')[0]} of a {node.role} node" for node in epoch.nodes for one in node.total.lacks]


def _settings(a: Report, b: Report) -> list[str]:
    """Return the differences in the loaders' settings."""
    told, other = a.job.settings, b.job.settings
    return [
        f"differs in {name}: {told.get(name, '-')} and {other.get(name, '-')}"
        for name in dict.fromkeys([*told, *other])
        if told.get(name) != other.get(name)
    ]


def _left_out(name: str, job: Report, common: Sequence[str]) -> list[str]:
    alone = ", ".join(one.title for one in job.whole if one.title not in common)
    reasons = {"incomplete": ", ".join(job.job.partial), "not in the other job": alone}
    return [f"left out of {name}, {reason}: {titles}" for reason, titles in reasons.items() if titles]


# ---- for people -----------------------------------------------------------------------------------------------------


def comparison_text(found: Comparison, a: str, b: str) -> str:
    """Return the report for a terminal.

    Args:
        found: the comparison.
        a: name of the first job.
        b: name of the second job.
    """
    many = len(found.titles)
    table = TextTable(
        title=f"in the mean of {many} epochs" if many > 1 else found.titles[0],
        header=("", "A", "B", "B : A", "epochs' least", "most", "significant"),
        rows=tuple(_row(one, estimated=found.estimated) for one in found.measures),
    )
    refused = "\n".join(["These jobs are not comparable:", *(f"  {one}" for one in found.differences)])
    told = (
        f"A: {a}\nB: {b}",
        refused if found.differences else "",
        "\n".join(found.remarks),
        table.text(),
        "~ is an estimate, ± how far its model may be off. On one machine the ratio of two estimates is better known "
        "than their joules, since part of that error is in both, but how large a part is not known."
        if found.estimated
        else "",
    )
    return "\n\n".join(filter(None, told))


def _row(one: Measure, *, estimated: bool) -> tuple[str, ...]:
    mark = "~" if estimated and one.name != "seconds" else ""
    ratio, *by_epoch = one.ratios
    known = [each for each in by_epoch if each is not None] if len(by_epoch) > 1 else []
    least, most = min(known, default=None), max(known, default=None)
    differs = {None: ABSENT, True: "yes", False: "no"}[one.differs]
    return one.name, _cell(one.a, mark), _cell(one.b, mark), figure(ratio), figure(least), figure(most), differs


def _cell(figures: Sequence[Figure], mark: str) -> str:
    mean = _mean(figures)
    error = f" ±{mean.error / abs(mean.value):.0%}" if mean.error and mean.value else ""
    return f"{mark}{figure(mean.value)}{error}"
