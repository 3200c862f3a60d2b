"""Folders with the files that jobs leave, for tests of their analysis."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from emlio.clocks.exchange import Exchange
from emlio.clocks.fit import fit_clock
from emlio.energy.job.journal import JournalEpoch, JournalFile, LoaderFacts, StorageEnergy
from emlio.energy.job.note import JobNote, write_note
from emlio.energy.job.stages import CpuUse
from emlio.energy.recording.store import Store
from emlio.energy.values.device import Device, Domain
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.energy.values.spans import Span, Stage
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading

__all__ = ["make_epoch", "make_job", "make_loader", "make_storage", "steady"]

_TENTH_NS = SECOND_NS // 10
_FAR_NS = 7_000 * SECOND_NS
"""The offset of a daemon's clock."""


def steady(seconds: int, watts: Sequence[float], *, shift_ns: int = 0) -> tuple[Reading, ...]:
    """Return readings, ten per second, of devices that draw steady power.

    There are two processors, one of which is busy.
    """
    return tuple(
        make_reading(
            number,
            number * _TENTH_NS + shift_ns,
            *(round(number * power * 100_000) for power in watts),
            cpu_busy_ns=number * _TENTH_NS,
            cpu_total_ns=2 * number * _TENTH_NS,
        )
        for number in range(seconds * 10 + 1)
    )


def make_loader(**more: Any) -> LoaderFacts:
    """Return the facts of rank 0 of 1 on gpu-1, with changed fields."""
    usual = LoaderFacts(
        node="gpu-1",
        boot="boot-1",
        rank=0,
        pid=100,
        number=0,
        begun_real_ns=1,
        world_size=1,
        dataset="f00d",
        batch_size=32,
        shuffle="global",
        version="1",
    )
    return replace(usual, **more)


def make_epoch(epoch: int, from_s: float, to_s: float, **more: Any) -> JournalEpoch:
    """Return a whole epoch of 1,000 samples, with changed fields.

    For half of it the device computes, for a quarter something is decoded.
    """
    from_ns, to_ns = round(from_s * SECOND_NS), round(to_s * SECOND_NS)
    length_ns = to_ns - from_ns
    spans = (
        Span(stage=Stage.TRAIN, start_ns=from_ns, end_ns=from_ns + length_ns // 2, thread="cuda:0"),
        Span(
            stage=Stage.PREPROCESS, start_ns=from_ns + length_ns // 2, end_ns=from_ns + 3 * length_ns // 4, thread="d"
        ),
    )
    usual = JournalEpoch(
        epoch=epoch,
        from_ns=from_ns,
        to_ns=to_ns,
        samples=1_000,
        whole=True,
        spans=spans,
        cpu=CpuUse(train_ns=length_ns // 4, preprocess_ns=length_ns // 4, read_ns=length_ns // 8),
        file="gpu-1.sqlite",
        recording=1,
    )
    return replace(usual, **more)


def make_storage(seconds: int, watts: float = 30.0, **more: Any) -> StorageEnergy:
    """Return a daemon's answer. Its clock has a large offset, and the round trip takes 1 ms."""
    ways = [
        Exchange(
            sent_ns=at, heard_ns=at + _FAR_NS + 500_000, answered_ns=at + _FAR_NS + 500_000, came_ns=at + 1_000_000
        )
        for at in range(0, seconds * SECOND_NS, SECOND_NS)
    ]
    usual = StorageEnergy(
        daemon="store-1:5555",
        node="store-1",
        boot="boot-s",
        devices=(make_device("package-0"), make_device("dram-0", domain=Domain.DRAM)),
        readings=steady(seconds, (watts, 5.0), shift_ns=_FAR_NS),
        clock=fit_clock(ways),
        interval_ns=_TENTH_NS,
    )
    return replace(usual, **more)


def make_job(
    folder: Path,
    *,
    epochs: Sequence[JournalEpoch] = (),
    loaders: Sequence[tuple[LoaderFacts, Sequence[JournalEpoch]]] = (),
    devices: Sequence[Device] = (),
    watts: Sequence[float] = (100.0, 20.0),
    seconds: int = 30,
    note: JobNote | None = None,
    facts: Any = None,
    node: str = "gpu-1",
    boot: str = "boot-1",
) -> Path:
    """Make a folder with a recording from time 0 on, by default of a processor and memory.

    Args:
        folder: the folder; it is made.
        epochs: the epochs of the default loader.
        loaders: other loaders, with their epochs.
        devices: the recorded devices.
        watts: the power that they draw.
        seconds: the length of the recording.
        note: the note of a command.
        facts: the facts of the node, as a recorder notes them.
        node: the name of the node.
        boot: identifies the boot of the node.
    """
    folder.mkdir(parents=True)
    known = tuple(devices) or (make_device("package-0"), make_device("dram-0", domain=Domain.DRAM))
    run = Run(
        node=node,
        devices=known,
        interval_ns=_TENTH_NS,
        begun_mono_ns=0,
        begun_real_ns=0,
        boot=boot,
        facts={"processor": "Imagined CPU", "cores": 2, "memory_bytes": 16_000_000_000} if facts is None else facts,
    )
    with Store(folder / f"{node}.sqlite", read_only=False) as store:
        number = store.begin(run)
        store.append(number, steady(seconds, watts))
        store.end(number, seconds * SECOND_NS)
    told = [(make_loader(node=node, boot=boot), epochs)] if epochs else []
    for loader, noted in (*told, *loaders):
        with JournalFile(folder, loader) as journal:
            for epoch in noted:
                journal.add(epoch)
    if note is not None:
        write_note(folder, note)
    return folder
