"""What one loader's own epochs used.

Covers: its node's recording cut at its edges, storage nodes beside it. Does not cover: other ranks of the node, idle baselines
(emlio.energy's reports of a whole job).
"""

from collections.abc import Iterator
from pathlib import Path
from threading import Event

from emlio.energy.epoch_energy import EpochEnergy, NodeRecord, Role, measure_epoch
from emlio.energy.journal import Journal, JournalEpoch, StorageEnergy
from emlio.energy.series import Series
from emlio.energy.store import Store
from emlio.receiver.daemon_energy import DaemonEnergy

__all__ = ["figures", "storage_of"]

_LOOKS = 10
_BETWEEN_LOOKS_S = 0.1
"""A recorder hands on a reading at once that it was asked for, and a thread of it writes it."""


def storage_of(daemon: DaemonEnergy) -> StorageEnergy:
    """What a daemon said, as a journal has it."""
    series = daemon.series
    return StorageEnergy(
        daemon=daemon.daemon,
        node=daemon.node,
        boot=daemon.boot,
        devices=() if series is None else series.devices,
        readings=() if series is None else series.readings,
        clock=daemon.clock,
        interval_ns=daemon.interval_ns,
        absent=daemon.absent,
    )


def figures(folder: Path, journal: Journal) -> tuple[EpochEnergy, ...]:
    """Of all epochs of a journal. What was not recorded is absent."""
    return tuple(
        measure_epoch(
            epoch=epoch.epoch,
            from_ns=epoch.from_ns,
            to_ns=epoch.to_ns,
            samples=epoch.samples,
            records=(
                NodeRecord(
                    node=journal.loader.node,
                    role=Role.COMPUTE,
                    series=_recorded(folder, epoch),
                    spans=epoch.spans,
                    cpu=epoch.cpu,
                ),
                *_storage(journal, epoch),
            ),
        )
        for epoch in journal.epochs
    )


def _recorded(folder: Path, epoch: JournalEpoch) -> Series:
    """The recording from edge to edge, or as much of it as there is after a while."""
    if epoch.recording is None:
        return Series(devices=(), readings=())
    waiting = Event()
    with Store(folder / epoch.file) as store:
        for _ in range(_LOOKS):
            series = store.load(epoch.recording, from_ns=epoch.from_ns, to_ns=epoch.to_ns)
            ended = store.recording(epoch.recording).ended_mono_ns is not None
            if ended or (series.end_ns is not None and series.end_ns >= epoch.to_ns):
                return series
            waiting.wait(_BETWEEN_LOOKS_S)
        return store.load(epoch.recording, from_ns=epoch.from_ns, to_ns=epoch.to_ns)


def _storage(journal: Journal, epoch: JournalEpoch) -> Iterator[NodeRecord]:
    """Each storage node once, and not the loader's own machine, whose energy is counted as the loader's."""
    boots = {journal.loader.boot}
    names = {journal.loader.node}
    for storage in epoch.storage:
        series = storage.series
        if series is None or (storage.boot and storage.boot in boots):
            continue
        boots.add(storage.boot)
        name = storage.node if storage.node not in names else f"{storage.node} at {storage.daemon}"
        names.add(name)
        yield NodeRecord(node=name, role=Role.STORAGE, series=series, clock=storage.clock)
