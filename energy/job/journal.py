"""A loader's notes of its epochs, in a file that grows by one epoch at a time.

A file is named journal-RANK-PID-NUMBER.jsonl. Its first line describes the loader. Each other line
is an epoch, or what storage nodes reported about one later. A process that is killed loses its
current epoch; an incomplete last line is ignored.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import msgspec

from emlio.clocks.fit import ClockFit
from emlio.energy.job.stages import CpuUse
from emlio.energy.values.device import Device
from emlio.energy.values.reading import Reading
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span, Stage
from emlio.errors import ConfigError, EmlioError

__all__ = ["Journal", "JournalEpoch", "JournalFile", "LoaderFacts", "StorageEnergy", "read_journal", "read_journals"]

_VERSION = 1
_READING = tuple(field.name for field in fields(Reading))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFacts:
    """The loader that wrote a journal, and its settings.

    Runs that differ in a field after `world_size` should not be compared without saying so.

    Attributes:
        node: the name of this node, as its recorder has it where there is one.
        boot: the id of the boot that the times belong to.
        rank: of the process.
        pid: of the process.
        number: of the loader among those of its process that write a journal, from 0. Ranks create
            their loaders in the same order, so loaders of one number belong together. The number
            distinguishes a loader for training from one for validation.
        begun_real_ns: when it was created, by CLOCK_REALTIME.
        world_size: how many processes share each epoch.
        dataset: its fingerprint.
        batch_size: samples per step of this rank; None where a batch is bounded otherwise.
        shuffle: how far records move.
        protection: of data in transit; empty where no data comes over a network.
        version: of this program.
    """

    node: str
    boot: str
    rank: int
    pid: int
    number: int
    begun_real_ns: int
    world_size: int
    dataset: str = ""
    batch_size: int | None = None
    shuffle: str = ""
    protection: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size or self.number < 0:
            raise ConfigError(
                f"a journal's rank must be in [0, {self.world_size}) and its number at least 0, got {self.rank} and {self.number}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageEnergy:
    """A daemon's report of its node's energy around one epoch.

    Attributes:
        daemon: the daemon's address.
        node: the name of its node; empty where the daemon did not report it.
        boot: the id of that node's boot. If it is the loader's own, both run on one machine.
        devices: of that node; empty where there are no readings.
        readings: by that node's clock.
        clock: that clock against the loader's; None where it was not compared.
        interval_ns: of the recorder's schedule; 0 where there are no readings.
        absent: why there are no readings.
    """

    daemon: str
    node: str = ""
    boot: str = ""
    devices: tuple[Device, ...] = ()
    readings: tuple[Reading, ...] = ()
    clock: ClockFit | None = None
    interval_ns: int = 0
    absent: str = ""

    @property
    def series(self) -> Series | None:
        """The recording; None where there is none."""
        return None if self.absent else Series(devices=self.devices, readings=self.readings)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEpoch:
    """One iteration of a loader.

    Attributes:
        epoch: its number.
        from_ns: its first edge, by the node's CLOCK_MONOTONIC: the middle of the recorder's reading
            that was made for it, if there is one.
        to_ns: its second edge.
        samples: how many were delivered.
        whole: whether it began with the first batch and was not left before the last.
        spans: activity of threads and devices, in the order of time; decoding threads count as one.
        cpu: processor time of this process's stages; None where it is unknown.
        file: the name of the recorder's file; empty where no recorder answered.
        recording: the recording's number in it; None where no recorder answered.
        storage: the daemons' reports; empty where there are none, and where another rank asks for
            them.
    """

    epoch: int
    from_ns: int
    to_ns: int
    samples: int
    whole: bool
    spans: tuple[Span, ...] = ()
    cpu: CpuUse | None = None
    file: str = ""
    recording: int | None = None
    storage: tuple[StorageEnergy, ...] = ()

    def __post_init__(self) -> None:
        if self.to_ns <= self.from_ns or self.samples < 0 or self.epoch < 0:
            raise ConfigError(
                f"an epoch must end after it begins and have at least 0 samples, got {self.from_ns} to {self.to_ns} "
                f"ns and {self.samples} in epoch {self.epoch}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """A loader and its finished epochs.

    Attributes:
        loader: the loader that wrote it.
        epochs: in the order in which they ended.
    """

    loader: LoaderFacts
    epochs: tuple[JournalEpoch, ...] = ()


class JournalFile:
    """A writer of a journal. It must be used by one thread at a time."""

    def __init__(self, folder: Path, loader: LoaderFacts) -> None:
        """Create the file.

        If the name is taken by an earlier process with the same id, choose another.

        Raises:
            ConfigError: the file cannot be written.
        """
        stem, tries = f"journal-{loader.rank}-{loader.pid}-{loader.number}", 0
        try:
            while True:
                self.path = folder / (f"{stem}-{tries}.jsonl" if tries else f"{stem}.jsonl")
                try:
                    self._file = os.open(
                        self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644
                    )
                    break
                except FileExistsError:
                    tries += 1
        except OSError as error:
            raise ConfigError(f"a journal cannot be created in {folder}: {error}") from error
        self._closed = False
        self._write({"journal": _VERSION, "loader": msgspec.to_builtins(loader)})

    def add(self, epoch: JournalEpoch) -> None:
        """Write an epoch that has ended.

        Raises:
            ConfigError: it cannot be written.
        """
        self._write({"epoch": _epoch_line(epoch)})

    def add_storage(self, epoch: JournalEpoch, storage: Iterable[StorageEnergy]) -> None:
        """Write daemons' reports about an epoch that was already added.

        Raises:
            ConfigError: they cannot be written.
        """
        self._write({"storage": [_storage_line(one) for one in storage], "from_ns": epoch.from_ns})

    def _write(self, line: dict[str, Any]) -> None:
        left = memoryview(msgspec.json.encode(line) + b"\n")
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error}") from error

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            os.close(self._file)

    def __enter__(self) -> Self:
        """Itself, for `with`."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close."""
        self.close()


def read_journals(folder: Path) -> tuple[Journal, ...]:
    """Read all journals of a folder, sorted by rank and number.

    Raises:
        ConfigError: a file cannot be read or is not a journal.
    """
    found = [journal for path in sorted(folder.glob("journal-*.jsonl")) if (journal := read_journal(path)) is not None]
    return tuple(sorted(found, key=lambda one: (one.loader.rank, one.loader.number, one.loader.begun_real_ns)))


def read_journal(path: Path) -> Journal | None:
    """Read one journal; None where its process was killed before it had written the first line.

    Raises:
        ConfigError: the file cannot be read or is not a journal.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # text after the last newline is incomplete
        if not lines:
            return None
        first = msgspec.json.decode(lines[0])
        if first["journal"] != _VERSION:
            raise ValueError(f"version {first['journal']}")
        loader = msgspec.convert(first["loader"], LoaderFacts)
        return Journal(loader=loader, epochs=tuple(_epochs(lines[1:])))
    except (EmlioError, OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} must be a journal of version {_VERSION}: {error!r}") from error


def _epochs(lines: Sequence[bytes]) -> Iterator[JournalEpoch]:
    epochs: dict[int, JournalEpoch] = {}
    for line in map(msgspec.json.decode, lines):
        if "epoch" in line:
            epoch = _epoch_value(line["epoch"])
            epochs[epoch.from_ns] = epoch
        else:
            said = tuple(map(_storage_value, line["storage"]))
            epochs[line["from_ns"]] = replace(epochs[line["from_ns"]], storage=said)
    return iter(epochs.values())


def _epoch_line(epoch: JournalEpoch) -> dict[str, Any]:
    line: dict[str, Any] = {
        field.name: getattr(epoch, field.name) for field in fields(epoch) if field.name not in ("spans", "storage")
    }
    # A span is stored as its offset from the epoch's start and its length, since there are many.
    groups: dict[tuple[Stage, str], list[int]] = {}
    for span in epoch.spans:
        group = groups.setdefault((span.stage, span.thread), [])
        group += (span.start_ns - epoch.from_ns, span.end_ns - span.start_ns)
    line["spans"] = [(stage, thread, numbers) for (stage, thread), numbers in groups.items()]
    line["storage"] = [_storage_line(one) for one in epoch.storage]
    return line


def _epoch_value(line: dict[str, Any]) -> JournalEpoch:
    from_ns = int(line["from_ns"])
    spans = [
        Span(stage=Stage(stage), start_ns=from_ns + after, end_ns=from_ns + after + length, thread=thread)
        for stage, thread, numbers in line.pop("spans")
        for after, length in zip(numbers[::2], numbers[1::2], strict=True)
    ]
    storage = tuple(map(_storage_value, line.pop("storage")))
    epoch = msgspec.convert(line, JournalEpoch)
    return replace(epoch, spans=tuple(sorted(spans, key=_place)), storage=storage)


def _place(span: Span) -> tuple[int, int, str, str]:
    return span.start_ns, span.end_ns, span.stage, span.thread


def _storage_line(storage: StorageEnergy) -> dict[str, Any]:
    line: dict[str, Any] = {
        field.name: getattr(storage, field.name) for field in fields(storage) if field.name != "readings"
    }
    line["readings"] = [[getattr(reading, name) for name in _READING] for reading in storage.readings]
    return line


def _storage_value(line: dict[str, Any]) -> StorageEnergy:
    rows = [dict(zip(_READING, row, strict=True)) for row in line.pop("readings")]
    return replace(msgspec.convert(line, StorageEnergy), readings=msgspec.convert(rows, tuple[Reading, ...]))
