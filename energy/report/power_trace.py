"""Power over time, in as many pieces as a plot can show.

Covers: mean power of each domain and the stages' parts of the time, piece by piece. Does not cover:
drawing (emlio.energy.report.power_plot).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from emlio.energy.job.epoch_energy import DOMAINS, NodeRecord, Role
from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.partition import Stretch, partition
from emlio.energy.values.spans import Span, Stage
from emlio.energy.values.total import DeviceEnergy, total_of
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["EpochEdges", "PowerLine", "PowerTrace", "trace_power"]

_STAGES = (Stage.TRAIN, Stage.PREPROCESS, Stage.READ)
_MOST_PIECES = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEdges:
    """The edges of an epoch.

    Attributes:
        epoch: its number.
        from_ns: its first edge.
        to_ns: its second.
        name: its label where the number is not enough.
    """

    epoch: int
    from_ns: int
    to_ns: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.to_ns <= self.from_ns:
            raise ConfigError(f"epoch {self.epoch} must end after it begins, got {self.from_ns} to {self.to_ns} ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLine:
    """The power of one domain of a node.

    Attributes:
        domain: the domain.
        method: the weakest of its devices' methods.
        watts: mean power in each piece; None where it is unknown for any device.
    """

    domain: Domain
    method: Method
    watts: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTrace:
    """The power of one node.

    Attributes:
        node: its name.
        role: of the node.
        edges_s: where the pieces begin, and where the last one ends, in seconds since the plot's
            start.
        lines: of the domains that were recorded.
        stages: each stage's part of each piece, at most 1 in total; empty for a node without spans.
            Outside of epochs there are no stages.
        epochs: their edges, relative to the plot's start.
    """

    node: str
    role: Role
    edges_s: tuple[float, ...]
    lines: tuple[PowerLine, ...]
    stages: tuple[tuple[Stage, tuple[float, ...]], ...]
    epochs: tuple[EpochEdges, ...]


def trace_power(
    record: NodeRecord, epochs: Sequence[EpochEdges], *, from_ns: int, to_ns: int, most_pieces: int = _MOST_PIECES
) -> PowerTrace:
    """Cut a node's recording into pieces that are no finer than its readings.

    Args:
        record: of the node.
        epochs: in the order of time, by the same clock as the moments below.
        from_ns: the first moment, by the clock that the record's clock was compared with.
        to_ns: the last one.
        most_pieces: limit of pieces.
    """
    if to_ns <= from_ns or most_pieces < 1:
        raise ConfigError(f"a plot must have a duration and pieces above 0, got {to_ns - from_ns} ns in {most_pieces}")
    resolution_ns = _resolution_ns(record, from_ns, to_ns)
    pieces = max(min((to_ns - from_ns) // resolution_ns, most_pieces), 1) if resolution_ns else 1
    edges = [from_ns + (to_ns - from_ns) * number // pieces for number in range(pieces + 1)]
    return PowerTrace(
        node=record.node,
        role=record.role,
        edges_s=tuple((edge - from_ns) / 1e9 for edge in edges),
        lines=tuple(line for domain in DOMAINS if (line := _line(record, domain, edges)) is not None),
        stages=_stages(record, epochs, edges) if record.spans else (),
        epochs=tuple(replace(one, from_ns=one.from_ns - from_ns, to_ns=one.to_ns - from_ns) for one in epochs),
    )


def _theirs(record: NodeRecord, ours_ns: int) -> int:
    return ours_ns if record.clock is None else record.clock.theirs_at(ours_ns)


def _resolution_ns(record: NodeRecord, from_ns: int, to_ns: int) -> int | None:
    begun_ns, ended_ns = _theirs(record, from_ns), _theirs(record, to_ns)
    if ended_ns <= begun_ns:
        return None
    return Window(series=record.series, from_ns=begun_ns, to_ns=ended_ns).resolution_ns


def _line(record: NodeRecord, domain: Domain, edges: Sequence[int]) -> PowerLine | None:
    devices = [device for device in record.series.devices if device.domain is domain and device.adds]
    if not devices:
        return None
    watts = list[float | None]()
    for begun_ns, ended_ns in pairwise(_theirs(record, edge) for edge in edges):
        passed_ns = ended_ns - begun_ns
        used = [record.series.energy_uj(one.name, begun_ns, ended_ns) for one in devices] if passed_ns > 0 else [None]
        known = [energy_uj for energy_uj in used if energy_uj is not None]
        watts.append(sum(known) * 1000 / passed_ns if len(known) == len(used) else None)
    method = total_of((DeviceEnergy(device=device, energy_uj=0) for device in devices), node=record.node).method
    return PowerLine(domain=domain, method=method or Method.MEASURED, watts=tuple(watts))


def _stages(
    record: NodeRecord, epochs: Sequence[EpochEdges], edges: Sequence[int]
) -> tuple[tuple[Stage, tuple[float, ...]], ...]:
    """Return each stage's part of the pieces, by the node's own clock.

    Both pieces and stretches are in the order of time, so one pass is enough.
    """
    theirs = [_theirs(record, edge) for edge in edges]
    spans = sorted(record.spans, key=_start_ns)
    longest_ns = max(span.end_ns - span.start_ns for span in spans)
    stretches = [one for epoch in epochs for one in _stretches(record, spans, longest_ns, epoch)]
    times = {stage: [0] * (len(edges) - 1) for stage in _STAGES}
    place = 0
    for number, (begun_ns, ended_ns) in enumerate(pairwise(theirs)):
        while place < len(stretches):
            one = stretches[place]
            times[one.stage][number] += max(min(one.end_ns, ended_ns) - max(one.start_ns, begun_ns), 0)
            if one.end_ns > ended_ns:
                break
            place += 1
    lengths = [max(ended_ns - begun_ns, 1) for begun_ns, ended_ns in pairwise(theirs)]
    return tuple(
        (stage, tuple(part / length for part, length in zip(parts, lengths, strict=True)))
        for stage, parts in times.items()
    )


def _start_ns(span: Span) -> int:
    return span.start_ns


def _stretches(record: NodeRecord, spans: Sequence[Span], longest_ns: int, epoch: EpochEdges) -> tuple[Stretch, ...]:
    """Return the stretches of one epoch.

    Only spans that may lie in the epoch are examined, since a job has many epochs with many spans
    each.
    """
    begun_ns, ended_ns = _theirs(record, epoch.from_ns), _theirs(record, epoch.to_ns)
    if ended_ns <= begun_ns:
        return ()
    first = bisect_left(spans, begun_ns - longest_ns, key=_start_ns)
    return partition(spans[first : bisect_left(spans, ended_ns, key=_start_ns)], begun_ns, ended_ns)
