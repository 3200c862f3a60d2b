"""The power of a job's nodes over time, by the first node's clock.

Covers: the time range shown, aligning nodes' clocks, joining what a daemon reported epoch by epoch.
Does not cover: the figures (emlio.energy.report.power_trace), drawing
(emlio.energy.report.power_plot).
"""

from collections.abc import Sequence

from emlio.clocks.fit import ClockFit, ClockLine
from emlio.energy.job.epoch_energy import NodeRecord, Role
from emlio.energy.job.job_energy import NOTHING, Job, JobFolder
from emlio.energy.job.storage_nodes import StorageNode
from emlio.energy.report.power_trace import EpochEdges, PowerTrace, trace_power
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span
from emlio.errors import ConfigError

__all__ = ["job_traces"]


def job_traces(job: Job) -> tuple[PowerTrace, ...]:
    """Return a trace for each node that has a recording.

    A trace covers the command and all epochs.
    """
    stretches = [_stretch(job, place) for place in range(len(job.folders))]
    first = next((one for one in stretches if one is not None), None)
    if first is None:
        return ()
    from_ns, to_ns = first
    epochs = _edges(job, next(place for place, one in enumerate(stretches) if one is not None))
    traces: list[PowerTrace] = []
    for place, (folder, own) in enumerate(zip(job.folders, stretches, strict=True)):
        if own is None:
            continue
        record = _compute_record(job, folder, place, own, _shift(job, place, from_ns, own[0]))
        if record.series.readings:
            traces.append(trace_power(record, epochs, from_ns=from_ns, to_ns=to_ns))
    for name in dict.fromkeys(one.node for epoch in job.epochs for one in epoch.storage):
        stored = _storage_record(name, [one for epoch in job.epochs for one in epoch.storage if one.node == name])
        if stored is not None:
            traces.append(trace_power(stored, epochs, from_ns=from_ns, to_ns=to_ns))
    return tuple(traces)


def _stretch(job: Job, place: int) -> tuple[int, int] | None:
    """Return the time range shown, by that node's own clock."""
    note = job.folders[place].note
    edges = [
        (node.from_ns, node.to_ns)
        for epoch in job.epochs
        if epoch.joined is not None
        for node in epoch.joined.nodes
        if node.place == place
    ]
    if note is not None and note.ended_ns is not None:
        edges.append((note.begun_ns, note.ended_ns))
    return (min(begun for begun, _ in edges), max(ended for _, ended in edges)) if edges else None


def _edges(job: Job, place: int) -> list[EpochEdges]:
    """Return the edges of epochs that do not overlap.

    Epochs of a second loader that is iterated at the same time are left out.
    """
    found: list[EpochEdges] = []
    for epoch in job.epochs:
        for node in () if epoch.joined is None else epoch.joined.nodes:
            if node.place == place and (not found or node.from_ns >= found[-1].to_ns):
                key = epoch.energy
                found.append(EpochEdges(epoch=key.epoch, from_ns=node.from_ns, to_ns=node.to_ns, name=key.name))
    return found


def _shift(job: Job, place: int, from_ns: int, own_ns: int) -> ClockFit | None:
    """Return the offset of a compute node's clock.

    Compute nodes' clocks are not compared; they are aligned at the start of their first common
    epoch.
    """
    if place == 0:
        return None
    offset_ns = own_ns - from_ns
    for epoch in job.epochs:
        begun = {node.place: node.from_ns for node in (() if epoch.joined is None else epoch.joined.nodes)}
        if 0 in begun and place in begun:
            offset_ns = begun[place] - begun[0]
            break
    line = ClockLine(
        from_ns=from_ns, to_ns=from_ns, offset_ns=offset_ns, drift_ppb=0.0, error_ns=0, round_trip_ns=0, exchanges=0
    )
    return ClockFit(lines=(line,))


def _compute_record(
    job: Job, folder: JobFolder, place: int, stretch: tuple[int, int], clock: ClockFit | None
) -> NodeRecord:
    spans: list[Span] = []
    keys: dict[tuple[str, int], None] = {}
    for epoch in job.epochs:
        for node in () if epoch.joined is None else epoch.joined.nodes:
            if node.place == place:
                spans.extend(node.spans)
                keys.update({} if node.recording is None else {node.recording: None})
    recorded = [folder.recorded(key) for key in keys] or [folder.of_command]
    pieces = [one[0].thinned(*stretch) for one in recorded if one is not None]
    return NodeRecord(node=folder.node, role=Role.COMPUTE, series=_longest(pieces), spans=tuple(spans), clock=clock)


def _storage_record(name: str, told: Sequence[StorageNode]) -> NodeRecord | None:
    """Join a daemon's reports of each epoch where they are of one recording.

    The last clock comparison is used, since it is the most precise.
    """
    known = [one for one in told if one.series is not None]
    if not known:
        return None
    series = known[0].series
    for one in known[1:]:
        if series is not None and one.series is not None:
            series = _joined(series, one.series)
    return None if series is None else NodeRecord(node=name, role=Role.STORAGE, series=series, clock=known[-1].clock)


def _joined(before: Series, after: Series) -> Series:
    end_ns = before.end_ns
    new = tuple(one for one in after.readings if end_ns is None or one.mono_ns > end_ns)
    try:
        return Series(devices=before.devices, readings=(*before.readings, *new))
    except ConfigError:  # the recorder was restarted in between: totals begin at 0 again
        return _longest([before, after])


def _longest(pieces: Sequence[Series]) -> Series:
    return max(pieces, key=lambda one: (one.end_ns or 0) - (one.start_ns or 0), default=NOTHING)
