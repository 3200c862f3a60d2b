"""The energy of a job, read from its folders.

Covers: reading recordings and journals of one or several nodes, cutting them into epochs, remarks
on what is missing. Does not cover: which journal entries belong together (emlio.energy.job.epochs),
tables (emlio.energy.report.job_report), plots (emlio.energy.report.job_traces).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emlio.energy.job.baseline import Baseline, measure_idle
from emlio.energy.job.epoch_energy import WHOLE_RUN, EpochEnergy, NodeEnergy, NodeRecord, Role, measure_epoch
from emlio.energy.job.epochs import JobEpoch, NodeEpoch, join_epochs
from emlio.energy.job.journal import Journal, read_journals
from emlio.energy.job.note import JobNote, NodeRecording, read_note
from emlio.energy.job.storage_nodes import StorageNode, storage_nodes
from emlio.energy.values.device import Device
from emlio.energy.values.series import Series
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["NOTHING", "Job", "JobFolder", "JobNode", "MeasuredEpoch", "read_job"]

NOTHING = Series(devices=(), readings=())
"""The series of a node without a recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNode:
    """A node that took part; an unknown value is empty or None.

    Attributes:
        node: its name.
        role: of the node.
        devices: those that were recorded.
        processor: its name.
        cores: of all its processors.
        memory_bytes: of the machine.
        boot: the id of the recorded boot.
    """

    node: str
    role: Role
    devices: tuple[Device, ...]
    processor: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    boot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEpoch:
    """An epoch and its energy.

    Attributes:
        energy: of all nodes.
        joined: the epoch it was measured for; None for a command without epochs.
        storage: daemons' nodes that were counted, with their recordings.
    """

    energy: EpochEnergy
    joined: JobEpoch | None = None
    storage: tuple[StorageNode, ...] = ()

    @property
    def whole(self) -> bool:
        """True if the epoch was iterated from its beginning to its end."""
        return self.joined is None or self.joined.whole


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFolder:
    """A node's part of a job.

    Attributes:
        path: of the folder.
        node: its name in this job.
        note: of the command; None where a loader began the recording.
        journals: of its loaders.
        recordings: by file and number; with the baseline of each.
        boot: the id of the boot that its times belong to.
    """

    path: Path
    node: str
    note: JobNote | None
    journals: tuple[Journal, ...]
    boot: str
    recordings: Mapping[tuple[str, int], tuple[NodeRecording, Baseline]]

    def recorded(self, key: tuple[str, int] | None) -> tuple[NodeRecording, Baseline] | None:
        """Return a recording and its baseline; None where there is none."""
        return None if key is None else self.recordings.get(key)

    @property
    def of_command(self) -> tuple[NodeRecording, Baseline] | None:
        """The recording that was under way when the command began, and its baseline."""
        if self.note is None or self.note.recording is None:
            return None
        return self.recorded((self.note.file, self.note.recording))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The energy of a job.

    Attributes:
        folders: one for each compute node.
        epochs: in the order of time; one window called "run" where no loader noted any.
        whole: the command from start to end on the first node, without daemons' nodes. None where
            that is unknown, and where there are no epochs.
        nodes: all that took part.
        notes: what the figures lack, and what is unusual about them.
    """

    folders: tuple[JobFolder, ...]
    epochs: tuple[MeasuredEpoch, ...]
    whole: EpochEnergy | None
    nodes: tuple[JobNode, ...]
    notes: tuple[str, ...]

    @property
    def note(self) -> JobNote | None:
        """The note of the command on the first node."""
        return self.folders[0].note

    @property
    def energies(self) -> tuple[EpochEnergy, ...]:
        """The energy of each epoch."""
        return tuple(one.energy for one in self.epochs)


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
    folders = [_read_folder(path, notes) for path in paths]
    _check_apart(folders)
    folders = [
        replace(one, node=name) for one, name in zip(folders, _apart([one.node for one in folders]), strict=True)
    ]
    joined = join_epochs([one.journals for one in folders])
    epochs = [_measure(one, folders, notes) for one in joined]
    whole = [energy for one in folders if (energy := _command_energy(one)) is not None]
    if not epochs and not whole:
        raise ConfigError(f"{', '.join(map(str, paths))} must hold a finished command or epoch, has neither")
    if not epochs:
        nodes = tuple(node for energy in whole for node in energy.nodes)
        energy = replace(whole[0], duration_ns=max(one.duration_ns for one in whole), nodes=nodes)
        epochs, whole = [MeasuredEpoch(energy=energy)], []
    return Job(
        folders=tuple(folders),
        epochs=tuple(epochs),
        whole=whole[0] if whole else None,
        nodes=(*(_compute_node(one) for one in folders), *_storage_of(epochs)),
        notes=tuple(notes),
    )


def _read_folder(path: Path, notes: dict[str, None]) -> JobFolder:
    if not path.is_dir():
        raise ConfigError(f"a job's folder must be a folder, got {path}")
    note, journals = read_note(path), read_journals(path)
    node = next((one.loader.node for one in journals if one.loader.node), "")
    boot = next((one.loader.boot for one in journals), "")
    if note is not None:
        node, boot = note.node, note.boot
    found: dict[tuple[str, int], tuple[NodeRecording, Baseline]] = {}
    wanted = {(epoch.file, epoch.recording) for one in journals for epoch in one.epochs if epoch.recording is not None}
    if note is not None and note.recording is not None:
        wanted.add((note.file, note.recording))
    for file, number in sorted(wanted):
        try:
            found[file, number] = _with_rest(NodeRecording.numbered(path / Path(file).name, number), note)
        except ConfigError as error:
            notes[f"not counted: {error}"] = None
    if not found and note is None and not journals:
        raise ConfigError(f"{path} is not a folder of a job: it has no note of a command or a loader")
    for recording, _ in found.values():
        notes.update(dict.fromkeys(f"{recording.run.node}: {text}" for text in recording.run.warnings))
    return JobFolder(path=path, node=node or path.name, note=note, journals=journals, boot=boot, recordings=found)


def _with_rest(recording: NodeRecording, note: JobNote | None) -> tuple[NodeRecording, Baseline]:
    """Add the baseline, from the model or from the idle measurement before the command."""
    run = recording.run
    model = recording.facts.model
    by_model = {"cpu-model": model.idle_watts, "dram-model": model.memory_watts}
    names = {device.name for device in run.devices if device.source == "model"}
    # Rounded like the model's own counters; otherwise idle and used energy of an idle node would
    # differ.
    known = {name: round(watts, 6) for name, watts in by_model.items() if name in names and watts is not None}
    given = Baseline.given(known)
    if note is None or note.rest_ns is None or note.boot != run.boot:
        return recording, given
    from_ns, to_ns = note.rest_ns
    try:
        rested = measure_idle(Window(series=recording.series(from_ns, to_ns), from_ns=from_ns, to_ns=to_ns))
    except ConfigError:  # the idle time was too short, or is not in this recording
        return recording, given
    return recording, Baseline(idles=(*given.idles, *(one for one in rested.idles if one.device not in by_model)))


def _check_apart(folders: Sequence[JobFolder]) -> None:
    seen: dict[str, Path] = {}
    for one in folders:
        if one.boot and one.boot in seen:
            raise ConfigError(
                f"each folder must be from a different node, {seen[one.boot]} and {one.path} are from the same"
            )
        seen[one.boot] = one.path


def _apart(names: Sequence[str]) -> list[str]:
    """Return distinct names: a second node of the same name gets a number."""
    taken: list[str] = []
    for name in names:
        number, own = 1, name
        while own in taken:
            number += 1
            own = f"{name} ({number})"
        taken.append(own)
    return taken


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
    counted: list[StorageNode] = []
    shared: list[str] = []
    boots = {one.boot: one.node for one in folders if one.boot}
    for part in joined.nodes:
        folder = folders[part.place]
        nodes.append(_cut(part, _compute_record(part, folder), joined))
        taken = [*(one.node for one in folders), *(one.node for one in counted)]
        for storage in storage_nodes(part.storage, taken=taken):
            if storage.boot in boots:
                shared.append(boots[storage.boot])
                continue
            if storage.absent:
                notes[f"{joined.title}: {storage.node} is not counted: {storage.absent}"] = None
            counted.append(storage)
            nodes.append(_storage_energy(part, storage, joined))
    for name in dict.fromkeys(shared):
        notes[f"a daemon also runs on {name}: its energy is included in the figures of that node"] = None
    energy = EpochEnergy(
        epoch=joined.key.epoch,
        duration_ns=max(part.to_ns - part.from_ns for part in joined.nodes),
        samples=joined.samples,
        nodes=tuple(sorted(nodes, key=lambda one: one.role is Role.STORAGE)),
        name=joined.key.name,
        shared=tuple(dict.fromkeys(shared)),
    )
    return MeasuredEpoch(energy=energy, joined=joined, storage=tuple(counted))


def _compute_record(part: NodeEpoch, folder: JobFolder) -> NodeRecord:
    recorded = folder.recorded(part.recording)
    if recorded is None:
        return NodeRecord(node=folder.node, role=Role.COMPUTE, series=NOTHING, spans=part.spans)
    series = recorded[0].series(part.from_ns, part.to_ns)
    busy_ns = Window(series=series, from_ns=part.from_ns, to_ns=part.to_ns).cpu_busy_ns
    return NodeRecord(
        node=folder.node,
        role=Role.COMPUTE,
        series=series,
        baseline=recorded[1],
        spans=part.spans,
        cpu=part.cpu(busy_ns),
    )


def _storage_energy(part: NodeEpoch, storage: StorageNode, joined: JobEpoch) -> NodeEnergy:
    if storage.series is None:
        return NodeEnergy(node=storage.node, role=Role.STORAGE, duration_ns=part.to_ns - part.from_ns, devices=())
    record = NodeRecord(node=storage.node, role=Role.STORAGE, series=storage.series, clock=storage.clock)
    return _cut(part, record, joined)


def _cut(part: NodeEpoch, record: NodeRecord, joined: JobEpoch) -> NodeEnergy:
    measured = measure_epoch(
        epoch=joined.key.epoch, from_ns=part.from_ns, to_ns=part.to_ns, samples=part.samples, records=[record]
    )
    return measured.nodes[0]


def _command_energy(folder: JobFolder) -> EpochEnergy | None:
    """Return the command's energy from start to end, without stages.

    Stages are known only inside epochs.
    """
    note = folder.note
    if note is None or note.ended_ns is None:
        return None
    recorded = folder.of_command
    series = NOTHING if recorded is None else recorded[0].series(note.begun_ns, note.ended_ns)
    record = NodeRecord(
        node=folder.node,
        role=Role.COMPUTE,
        series=series,
        baseline=Baseline() if recorded is None else recorded[1],
    )
    found = measure_epoch(epoch=0, from_ns=note.begun_ns, to_ns=note.ended_ns, samples=0, records=[record])
    return replace(found, name=WHOLE_RUN, nodes=tuple(replace(node, tables=()) for node in found.nodes))


def _compute_node(folder: JobFolder) -> JobNode:
    recorded = [one for one, _ in folder.recordings.values()]
    if not recorded:
        return JobNode(node=folder.node, role=Role.COMPUTE, devices=(), boot=folder.boot)
    facts = recorded[-1].facts
    return JobNode(
        node=folder.node,
        role=Role.COMPUTE,
        devices=recorded[-1].run.devices,
        processor=facts.processor,
        cores=facts.cores,
        memory_bytes=facts.memory_bytes,
        boot=folder.boot,
    )


def _storage_of(epochs: Iterable[MeasuredEpoch]) -> list[JobNode]:
    """Return each storage node once, with its devices if any epoch has them."""
    found: dict[str, JobNode] = {}
    for epoch in epochs:
        for one in epoch.storage:
            devices = () if one.series is None else one.series.devices
            if devices or one.node not in found:
                found[one.node] = JobNode(node=one.node, role=Role.STORAGE, devices=devices, boot=one.boot)
    return list(found.values())
