"""The power of a job's nodes over time, by the first node's clock, in as many pieces as a plot can show."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from emlio.clocks.fit import ClockFit, ClockLine
from emlio.energy.job.epoch_energy import DOMAINS, Role
from emlio.energy.job.epochs import NodeEpoch
from emlio.energy.job.job_energy import NOTHING, Job
from emlio.energy.job.journal import StorageEnergy
from emlio.energy.job.node_energy import NodeRecord
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Stage, partition
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["PowerLine", "PowerTrace", "job_traces", "trace_power"]

_STAGES = (Stage.TRAIN, Stage.PREPROCESS, Stage.READ)
_MOST_PIECES = 600

_Epoch = tuple[str, int, int]
"""The title and the edges of an epoch, by the first node's clock."""


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
        edges_s: where the pieces begin, and where the last one ends, in seconds since the start.
        lines: of the domains that were recorded.
        stages: each stage's part of each piece, at most 1 in total; empty for a node without spans.
            Outside of epochs there are no stages.
        epochs: titles and edges in seconds since the start.
    """

    node: str
    role: Role
    edges_s: tuple[float, ...]
    lines: tuple[PowerLine, ...]
    stages: dict[Stage, tuple[float, ...]]
    epochs: tuple[tuple[str, float, float], ...]


def job_traces(job: Job) -> tuple[PowerTrace, ...]:
    """Return a trace for each node that has a recording. It covers the command and all epochs."""
    shown = [(place, found) for place in range(len(job.folders)) if (found := _stretch(job, place)) is not None]
    if not shown:
        return ()
    first, (from_ns, to_ns) = shown[0]
    epochs = list[_Epoch]()
    for title, part in _parts(job, first):
        if not epochs or part.from_ns >= epochs[-1][2]:  # a second loader may be iterated at the same time
            epochs.append((title, part.from_ns, part.to_ns))
    records = [_compute_record(job, place, own, _shift(job, first, place, own[0] - from_ns)) for place, own in shown]
    stored: dict[str, list[StorageEnergy]] = {}
    for epoch in job.epochs:
        for one in epoch.storage:
            stored.setdefault(one.node, []).append(one)
    records.extend(_storage_record(name, told) for name, told in stored.items())
    return tuple(trace_power(one, epochs, from_ns, to_ns) for one in records if one.series.readings)


def _parts(job: Job, place: int) -> list[tuple[str, NodeEpoch]]:
    """Return the epochs of one compute node with their titles."""
    return [(one.energy.title, part) for one in job.epochs for part in one.joined.nodes if part.place == place]


def _stretch(job: Job, place: int) -> tuple[int, int] | None:
    """Return the time range shown, by that node's own clock."""
    note = job.folders[place].note
    edges = [(part.from_ns, part.to_ns) for _, part in _parts(job, place)]
    if note is not None and note.ended_ns is not None:
        edges.append((note.begun_ns, note.ended_ns))
    return (min(begun for begun, _ in edges), max(ended for _, ended in edges)) if edges else None


def _shift(job: Job, first: int, place: int, offset_ns: int) -> ClockFit | None:
    """Return the offset of a compute node's clock.

    Compute nodes' clocks are not compared; they are aligned at the start of their first common
    epoch, else by `offset_ns`.
    """
    if place == first:
        return None
    for epoch in job.epochs:
        begun = {part.place: part.from_ns for part in epoch.joined.nodes}
        if first in begun and place in begun:
            offset_ns = begun[place] - begun[first]
            break
    line = ClockLine(from_ns=0, to_ns=0, offset_ns=offset_ns, drift_ppb=0.0, error_ns=0, round_trip_ns=0, exchanges=0)
    return ClockFit(lines=(line,))


def _compute_record(job: Job, place: int, stretch: tuple[int, int], clock: ClockFit | None) -> NodeRecord:
    folder = job.folders[place]
    parts = [part for _, part in _parts(job, place)]
    keys = dict.fromkeys(part.recording for part in parts if part.recording is not None)
    recorded = [folder.recordings.get(key) for key in keys] or [folder.of_command]
    return NodeRecord(
        node=folder.node,
        role=Role.COMPUTE,
        series=_longest([one.thinned(*stretch) for one in recorded if one is not None]),
        spans=tuple(span for part in parts for span in part.spans),
        clock=clock,
    )


def _storage_record(name: str, told: Sequence[StorageEnergy]) -> NodeRecord:
    """Join a daemon's reports of each epoch where they are of one recording.

    The last clock comparison is used, since it is the most precise.
    """
    joined, clock = NOTHING, None
    for one in told:
        if one.series is None:
            continue
        clock = one.clock
        end_ns = joined.end_ns
        new = tuple(reading for reading in one.series.readings if end_ns is None or reading.mono_ns > end_ns)
        try:
            joined = Series(devices=one.series.devices, readings=(*joined.readings, *new))
        except ConfigError:  # the recorder was restarted in between: totals begin at 0 again
            joined = _longest([joined, one.series])
    return NodeRecord(node=name, role=Role.STORAGE, series=joined, clock=clock)


def _longest(pieces: Sequence[Series]) -> Series:
    return max(pieces, key=lambda one: (one.end_ns or 0) - (one.start_ns or 0), default=NOTHING)


def trace_power(
    record: NodeRecord, epochs: Sequence[_Epoch], from_ns: int, to_ns: int, *, most_pieces: int = _MOST_PIECES
) -> PowerTrace:
    """Cut a node's recording into pieces that are no finer than its readings.

    Args:
        record: of the node.
        epochs: in the order of time, by the same clock as the moments below.
        from_ns: the first moment, by the clock that the record's clock was compared with.
        to_ns: the last one, after the first.
        most_pieces: limit of pieces.
    """
    begun_ns, ended_ns = (_theirs(record, edge) for edge in (from_ns, to_ns))
    resolution_ns = None
    if ended_ns > begun_ns:
        resolution_ns = Window(series=record.series, from_ns=begun_ns, to_ns=ended_ns).resolution_ns
    pieces = max(min((to_ns - from_ns) // resolution_ns, most_pieces), 1) if resolution_ns else 1
    edges = [from_ns + (to_ns - from_ns) * number // pieces for number in range(pieces + 1)]
    theirs = [_theirs(record, edge) for edge in edges]
    return PowerTrace(
        node=record.node,
        role=record.role,
        edges_s=tuple((edge - from_ns) / 1e9 for edge in edges),
        lines=tuple(line for domain in DOMAINS if (line := _line(record.series, domain, theirs)) is not None),
        stages=_stages(record, epochs, theirs) if record.spans else {},
        epochs=tuple((title, (begun - from_ns) / 1e9, (ended - from_ns) / 1e9) for title, begun, ended in epochs),
    )


def _theirs(record: NodeRecord, ours_ns: int) -> int:
    return ours_ns if record.clock is None else record.clock.theirs_at(ours_ns)


def _line(series: Series, domain: Domain, edges: Sequence[int]) -> PowerLine | None:
    devices = [device for device in series.devices if device.domain is domain and device.adds]
    if not devices:
        return None
    watts = list[float | None]()
    for begun_ns, ended_ns in pairwise(edges):
        used = [series.energy_uj(one.name, begun_ns, ended_ns) for one in devices] if ended_ns > begun_ns else [None]
        known = [energy_uj for energy_uj in used if energy_uj is not None]
        watts.append(sum(known) * 1000 / (ended_ns - begun_ns) if len(known) == len(used) else None)
    method = max((device.method for device in devices), key=list(Method).index)
    return PowerLine(domain=domain, method=method, watts=tuple(watts))


def _stages(record: NodeRecord, epochs: Sequence[_Epoch], edges: Sequence[int]) -> dict[Stage, tuple[float, ...]]:
    """Return each stage's part of the pieces; the edges are by the node's own clock."""
    times = {stage: [0] * (len(edges) - 1) for stage in _STAGES}
    stretches = partition(record.spans, edges[0], edges[-1]) if edges[-1] > edges[0] else ()
    ends = [one.end_ns for one in stretches]
    for _, *moments in epochs:
        begun_ns, ended_ns = (_theirs(record, moment) for moment in moments)
        for one in stretches[bisect_right(ends, begun_ns) :]:
            start_ns, end_ns = max(one.start_ns, begun_ns), min(one.end_ns, ended_ns)
            if start_ns >= end_ns:
                break
            for number in range(bisect_right(edges, start_ns) - 1, bisect_left(edges, end_ns)):
                times[one.stage][number] += min(end_ns, edges[number + 1]) - max(start_ns, edges[number])
    lengths = [max(end - begin, 1) for begin, end in pairwise(edges)]
    return {stage: tuple(part / of for part, of in zip(parts, lengths, strict=True)) for stage, parts in times.items()}
