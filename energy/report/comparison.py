"""A comparison of two jobs.

Covers: which of their epochs correspond, whether their figures may be compared at all, ratios and
their spread. Pure. Does not cover: reading the reports (emlio.energy.report.job_summary), tables
for people (emlio.energy.report.comparison_report).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from emlio.energy.report.job_summary import EpochSummary, JobSummary, NodeSummary
from emlio.energy.values.domain import Method
from emlio.errors import ConfigError

__all__ = ["MEASURES", "Comparison", "Measure", "Ratio", "compare_jobs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure of an epoch.

    Attributes:
        name: with its unit.
        of: returns the figure of an epoch; None where it is unknown.
    """

    name: str
    of: Callable[[EpochSummary], float | None]


def _kilojoules(domain: str, role: str | None = None) -> Callable[[EpochSummary], float | None]:
    return lambda epoch: epoch.joules(domain, role, per=1e3)


MEASURES = (
    Measure(name="seconds", of=lambda epoch: epoch.seconds),
    Measure(name="CPU kJ", of=_kilojoules("cpu")),
    Measure(name="DRAM kJ", of=_kilojoules("dram")),
    Measure(name="GPU kJ", of=_kilojoules("gpu")),
    Measure(name="compute kJ", of=_kilojoules("", "compute")),
    Measure(name="storage kJ", of=_kilojoules("", "storage")),
    Measure(name="total kJ", of=lambda epoch: epoch.total_kj),
    Measure(name="mean W", of=lambda epoch: epoch.mean_watts),
    Measure(name="J/sample", of=lambda epoch: epoch.joules_per_sample),
)
"""In the order of the tables' rows. The total is of all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One measure of both jobs.

    Attributes:
        name: of the measure.
        a: of each epoch of the first job; None where it is unknown.
        b: of the corresponding epochs of the second job.
    """

    name: str
    a: tuple[float | None, ...]
    b: tuple[float | None, ...]

    @property
    def means(self) -> tuple[float | None, float | None]:
        """The means over all epochs; None where a value is unknown."""
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
    ratios = [
        Ratio(name=one.name, a=tuple(one.of(left) for left, _ in pairs), b=tuple(one.of(right) for _, right in pairs))
        for one in MEASURES
    ]
    common = {left.title for left, _ in pairs}
    return Comparison(
        titles=tuple(left.title for left, _ in pairs),
        ratios=tuple(one for one in ratios if _is_known(one)),
        differences=tuple(dict.fromkeys(_differences(a, b, pairs))),
        remarks=(*_remarks(a, b), *_left_out("A", a, common), *_left_out("B", b, common)),
        estimated=a.estimated or b.estimated,
    )


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
            if one.total_kj is None:
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


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return b / a if a and b is not None else None
