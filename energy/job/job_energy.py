"""The energy of a job, read from its folders.

Covers: reading recordings and journals of one or several nodes, cutting them into epochs, remarks
on what is missing. Does not cover: which journal entries belong together (emlio.energy.job.epochs),
plots (emlio.energy.report.power).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from emlio.energy.job.baseline import Baseline
from emlio.energy.job.document import SCHEMA, JobDevice, JobFacts, JobNode, Report
from emlio.energy.job.epoch_energy import EpochEnergy, NodeEnergy, Role, epoch_energy
from emlio.energy.job.epochs import JobEpoch, NodeEpoch, join_epochs, storage_nodes
from emlio.energy.job.journal import Journal, StorageEnergy, read_journals
from emlio.energy.job.node_energy import NodeRecord, measure_node, node_energy
from emlio.energy.job.node_recording import NodeRecording
from emlio.energy.job.note import JobNote, read_note
from emlio.energy.values.device import Device
from emlio.energy.values.series import Series
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["NOTHING", "Job", "JobFolder", "MeasuredEpoch", "read_job"]

NOTHING = Series(devices=(), readings=())
"""The series of a node without a recording."""

_WHOLE_RUN = "run"
"""The title of the time from the start of a command to its end, which is not an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFolder:
    """A node's part of a job.

    Attributes:
        path: of the folder.
        node: its name in this job.
        note: of the command; None where a loader began the recording.
        journals: of its loaders.
        boot: the id of the boot that its times belong to.
        recordings: by file and number.
    """

    path: Path
    node: str
    note: JobNote | None
    journals: tuple[Journal, ...]
    boot: str
    recordings: Mapping[tuple[str, int], NodeRecording]

    @property
    def of_command(self) -> NodeRecording | None:
        """The recording that was under way when the command began."""
        note = self.note
        return None if note is None or note.recording is None else self.recordings.get((note.file, note.recording))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEpoch:
    """An epoch of a job, with its energy.

    Attributes:
        joined: the epoch.
        energy: of all nodes.
        storage: daemons' nodes that were counted, with their recordings.
    """

    joined: JobEpoch
    energy: EpochEnergy
    storage: tuple[StorageEnergy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that was read from its folders.

    Attributes:
        report: its energy.
        folders: one for each compute node.
        epochs: in the order of time; none for a command without loaders.
    """

    report: Report
    folders: tuple[JobFolder, ...]
    epochs: tuple[MeasuredEpoch, ...]


def read_job(paths: Sequence[Path]) -> Job:
    """Read a job's folders.

    Args:
        paths: its folders, one for each compute node.

    Raises:
        ConfigError: no folder is given, one cannot be read, or two are of the same node.
    """
    if not paths:
        raise ConfigError("a job must have at least one folder, got none")
    notes: dict[str, None] = {}
    folders = _apart([_read_folder(path, notes) for path in paths])
    epochs = [_measure(one, folders, notes) for one in join_epochs([one.journals for one in folders])]
    whole = [energy for one in folders if (energy := _command_energy(one)) is not None]
    energies = [one.energy for one in epochs]
    if not epochs:
        if not whole:
            raise ConfigError(f"{', '.join(map(str, paths))} must hold a finished command or epoch, has neither")
        longest = max(round(one.seconds * 1e9) for one in whole)
        energies = [_run_energy(longest, [node for energy in whole for node in energy.nodes])]
    note = folders[0].note
    journals = [journal for folder in folders for journal in folder.journals]
    facts = JobFacts(
        command=() if note is None else note.command,
        exit_status=None if note is None else note.status,
        begun_real_ns=None if note is None else note.begun_real_ns,
        version="" if note is None else note.version,
        whole=whole[0] if whole and epochs else None,
        nodes=(*map(_compute_node, folders), *_storage_of(epochs)),
        datasets=tuple(sorted({one.loader.dataset for one in journals if one.loader.dataset})),
        settings=_settings(journals),
        partial=tuple(one.energy.title for one in epochs if not one.joined.whole),
        notes=tuple(notes),
    )
    return Job(
        report=Report(schema=SCHEMA, epochs=tuple(energies), job=facts), folders=tuple(folders), epochs=tuple(epochs)
    )


def _read_folder(path: Path, notes: dict[str, None]) -> JobFolder:
    if not path.is_dir():
        raise ConfigError(f"a job's folder must be a folder, got {path}")
    note, journals = read_note(path), read_journals(path)
    node = next((one.loader.node for one in journals if one.loader.node), "")
    boot = next((one.loader.boot for one in journals), "")
    if note is not None:
        node, boot = note.node, note.boot
    found: dict[tuple[str, int], NodeRecording] = {}
    wanted = {(epoch.file, epoch.recording) for one in journals for epoch in one.epochs if epoch.recording is not None}
    if note is not None and note.recording is not None:
        wanted.add((note.file, note.recording))
    for file, number in sorted(wanted):
        try:
            found[file, number] = NodeRecording.numbered(path / Path(file).name, number, note)
        except ConfigError as error:
            notes[f"not counted: {error}"] = None
    if not found and note is None and not journals:
        raise ConfigError(f"{path} is not a folder of a job: it has no note of a command or a loader")
    for recording in found.values():
        notes.update(dict.fromkeys(f"{recording.run.node}: {text}" for text in recording.run.warnings))
    return JobFolder(path=path, node=node or path.name, note=note, journals=journals, boot=boot, recordings=found)


def _apart(folders: Sequence[JobFolder]) -> list[JobFolder]:
    """Refuse two folders of one node; give a second node of the same name a number."""
    seen: dict[str, Path] = {}
    named: dict[str, JobFolder] = {}
    for one in folders:
        if one.boot and one.boot in seen:
            raise ConfigError(
                f"each folder must be from a different node, {seen[one.boot]} and {one.path} are from the same"
            )
        seen[one.boot] = one.path
        number, name = 1, one.node
        while name in named:
            number += 1
            name = f"{one.node} ({number})"
        named[name] = replace(one, node=name)
    return list(named.values())


def _measure(joined: JobEpoch, folders: Sequence[JobFolder], notes: dict[str, None]) -> MeasuredEpoch:
    """Cut each node's recording at its own edges.

    Its daemons' recordings are cut at the same edges, by their own clocks.
    """
    noted, ranks = joined.ranks
    if noted < ranks:
        notes[
            f"{joined.title}: noted by only {noted} of {ranks} ranks. Add the folders of the other nodes to the report"
        ] = None
    elif not joined.whole:
        notes[f"{joined.title}: incomplete, it was left early or started in the middle"] = None
    nodes: list[NodeEnergy] = []
    counted: list[StorageEnergy] = []
    shared: dict[str, None] = {}
    boots = {one.boot: one.node for one in folders if one.boot}
    for part in joined.nodes:
        nodes.append(measure_node(_compute_record(part, folders[part.place]), part.from_ns, part.to_ns))
        taken = [*(one.node for one in folders), *(one.node for one in counted)]
        for storage in storage_nodes(part.storage, taken=taken):
            if storage.boot in boots:
                shared[boots[storage.boot]] = None
                continue
            if storage.absent:
                notes[f"{joined.title}: {storage.node} is not counted: {storage.absent}"] = None
            counted.append(storage)
            nodes.append(_storage_energy(part, storage))
    for name in shared:
        notes[f"a daemon also runs on {name}: its energy is included in the figures of that node"] = None
    energy = epoch_energy(
        epoch=joined.epoch,
        title=joined.title,
        duration_ns=max(part.to_ns - part.from_ns for part in joined.nodes),
        samples=joined.samples,
        nodes=sorted(nodes, key=lambda one: one.role is Role.STORAGE),
        shared=shared,
    )
    return MeasuredEpoch(joined=joined, energy=energy, storage=tuple(counted))


def _compute_record(part: NodeEpoch, folder: JobFolder) -> NodeRecord:
    recording = None if part.recording is None else folder.recordings.get(part.recording)
    if recording is None:
        return NodeRecord(node=folder.node, role=Role.COMPUTE, series=NOTHING, spans=part.spans)
    series = recording.series(part.from_ns, part.to_ns)
    busy_ns = Window(series=series, from_ns=part.from_ns, to_ns=part.to_ns).cpu_busy_ns
    return NodeRecord(
        node=folder.node,
        role=Role.COMPUTE,
        series=series,
        baseline=recording.baseline,
        spans=part.spans,
        cpu=part.cpu(busy_ns),
    )


def _storage_energy(part: NodeEpoch, storage: StorageEnergy) -> NodeEnergy:
    if storage.series is None:
        return node_energy(storage.node, Role.STORAGE, part.to_ns - part.from_ns)
    record = NodeRecord(node=storage.node, role=Role.STORAGE, series=storage.series, clock=storage.clock)
    return measure_node(record, part.from_ns, part.to_ns)


def _command_energy(folder: JobFolder) -> EpochEnergy | None:
    """Return the command's energy from start to end, without stages.

    Stages are known only inside epochs.
    """
    note = folder.note
    if note is None or note.ended_ns is None:
        return None
    recording = folder.of_command
    record = NodeRecord(
        node=folder.node,
        role=Role.COMPUTE,
        series=NOTHING if recording is None else recording.series(note.begun_ns, note.ended_ns),
        baseline=Baseline() if recording is None else recording.baseline,
    )
    measured = measure_node(record, note.begun_ns, note.ended_ns)
    return _run_energy(note.ended_ns - note.begun_ns, [msgspec.structs.replace(measured, stages={}, steps={})])


def _run_energy(duration_ns: int, nodes: Iterable[NodeEnergy]) -> EpochEnergy:
    return epoch_energy(epoch=None, title=_WHOLE_RUN, duration_ns=duration_ns, samples=0, nodes=nodes)


def _settings(journals: Sequence[Journal]) -> dict[str, str]:
    """Return the settings of the job's first loader."""
    if not journals:
        return {}
    first = min((one.loader for one in journals), key=lambda one: (one.number, one.rank))
    told = {
        "ranks": str(first.world_size),
        "batch size": "" if first.batch_size is None else str(first.batch_size),
        "shuffle": first.shuffle,
        "protection": first.protection,
        "version": first.version,
    }
    return {name: value for name, value in told.items() if value}


def _compute_node(folder: JobFolder) -> JobNode:
    recorded = list(folder.recordings.values())
    if not recorded:
        return JobNode(node=folder.node, role=Role.COMPUTE, boot=folder.boot)
    facts = recorded[-1].facts
    return JobNode(
        node=folder.node,
        role=Role.COMPUTE,
        boot=folder.boot,
        processor=facts.processor,
        cores=facts.cores,
        memory_bytes=facts.memory_bytes,
        devices=_devices(recorded[-1].run.devices),
    )


def _storage_of(epochs: Iterable[MeasuredEpoch]) -> list[JobNode]:
    """Return each storage node once, with its devices if any epoch has them."""
    found: dict[str, JobNode] = {}
    for epoch in epochs:
        for one in epoch.storage:
            devices = () if one.series is None else _devices(one.series.devices)
            if devices or one.node not in found:
                found[one.node] = JobNode(node=one.node, role=Role.STORAGE, devices=devices, boot=one.boot)
    return list(found.values())


def _devices(devices: tuple[Device, ...]) -> tuple[JobDevice, ...]:
    return msgspec.convert(devices, tuple[JobDevice, ...], from_attributes=True)
