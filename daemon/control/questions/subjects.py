"""The subjects that ranks may ask about: sizes of records, matches of predicates, single records, files, energy."""

import logging
from functools import partial
from pathlib import Path
from typing import assert_never

import numpy as np

from emlio.clock import Clock
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.answers import fault_of
from emlio.daemon.control.questions.files import FolderTrees
from emlio.daemon.control.questions.matches import PredicateMatches
from emlio.daemon.control.questions.work import Place, Work
from emlio.daemon.datasets.served import ServedDataset
from emlio.energy.export.wire_rows import row_of_device, row_of_reading
from emlio.energy.recording.excerpt import Stretch, take_excerpt
from emlio.energy.values.run import boot_id
from emlio.errors import DatasetError, EmlioError
from emlio.open_limits import is_used_up
from emlio.reading.single_records import find_records
from emlio.session.questions import SHORT_ANSWER_BYTES, answer_bytes
from emlio.wire.limits import (
    MAX_ENERGY_DEVICES,
    MAX_REASON,
    READINGS_PER_ENERGY,
    RECORD_BYTES_PER_REPLY,
    VALUES_PER_ENERGY,
)
from emlio.wire.questions import (
    Absent,
    AskEnergy,
    AskMatches,
    AskRanges,
    AskRecords,
    AskSizes,
    AskTree,
    Energy,
    Records,
    Subject,
    Told,
)

__all__ = ["Subjects"]

_LOG = logging.getLogger("emlio.daemon")

_MOST_READING = 2
"""Threads that read records of one dataset: one answer may be slow without holding up the other clients."""

_NO_RECORDING = "this daemon has no energy recording; start it with --energy FILE, the file of its host's recorder"


class Subjects:
    """Says how each question is answered. The control thread calls its methods."""

    def __init__(self, config: DaemonConfig, clock: Clock) -> None:
        """Begin with the daemon's configuration and the control thread's clock."""
        self._energy = config.energy
        self._boot = boot_id(Path("/proc"))
        self._clock = clock
        self._matches = PredicateMatches(config.cache_dir)
        self._trees = FolderTrees(records_only=config.records_only)

    def find(self, served: ServedDataset, about: Subject) -> Work:
        """Return how a question of a session with this dataset is answered.

        Raises:
            RefusedError: it cannot be.
        """
        match about:
            case AskSizes():
                return Work(make=partial(served.sizes, about))
            case AskMatches():
                return self._matches.find(served, about)
            case AskRecords():
                short = answer_bytes(about) <= SHORT_ANSWER_BYTES
                place = Place(subject="records", dataset=served.key, short=short, threads=_MOST_READING)
                return Work(make=partial(_records, served, about, self._clock), place=place)
            case AskTree() | AskRanges():
                return self._trees.find(served, about)
            case AskEnergy():
                if self._energy is None:
                    return Work(make=partial(Absent, text=_NO_RECORDING))
                return Work(make=partial(_energy, self._energy, self._boot, about), place=Place(subject="energy"))
            case _:
                assert_never(about)

    def forget(self, served: ServedDataset) -> None:
        """Drop what is known of a dataset that is closed."""
        self._matches.forget(served)
        self._trees.forget(served)

    def close(self) -> None:
        """Have long searches end, and close what was opened to answer."""
        self._matches.close()
        self._trees.close()


def _records(served: ServedDataset, about: AskRecords, clock: Clock) -> Told:
    """Read single records; a thread's work, since a disk may hang and a group of a table takes long to unpack."""
    numbers = served.numbers_of(about.records)
    if not len(numbers):
        row = about.records[0]
        return _absent(DatasetError(f"record {row.record} of shard {row.shard!r} must be at this daemon"))
    try:
        found = find_records(
            served.files,
            clock,
            numbers,
            np.array([row.record for row in about.records[: len(numbers)]], np.int64),
            offset=about.offset,
            most_bytes=RECORD_BYTES_PER_REPLY,
        )
    except EmlioError as error:
        return _absent(error)
    except OSError as error:
        text = f"a shard cannot be read: {error.filename or ''} {error.strerror}"
        return _absent(DatasetError(text, passing=is_used_up(error)))
    except Exception as error:  # noqa: BLE001  # the client must get an answer
        _LOG.exception("reading single records of %s failed", served.name)
        return _absent(EmlioError(f"internal error while reading: {error!r}"))
    return Records(
        sizes=found.sizes.astype("<u4").tobytes(),
        crcs=found.crcs.astype("<u4").tobytes(),
        payload=found.payload.tobytes(),
        notes=found.notes,
    )


def _absent(error: EmlioError) -> Absent:
    fault = fault_of(0, error)
    return Absent(code=fault.code, text=fault.text[:MAX_REASON])


def _energy(file: Path, boot: str, about: AskEnergy) -> Told:
    """Read what the recorder of this node has of an interval; its file is open only meanwhile."""
    stretch = Stretch(boot=boot, from_ns=about.from_ns, to_ns=about.to_ns, number=about.recording, first=about.first)
    try:
        found = take_excerpt(file, stretch, most_readings=READINGS_PER_ENERGY, most_values=VALUES_PER_ENERGY)
    except EmlioError as error:
        return Absent(text=str(error)[:MAX_REASON])
    except Exception as error:  # noqa: BLE001  # the client must get an answer
        return Absent(text=f"the recorder's file {file} cannot be read: {error!r}"[:MAX_REASON])
    recording = found.recording
    run = recording.run
    if len(run.devices) > MAX_ENERGY_DEVICES:
        text = (
            f"a recording must have at most {MAX_ENERGY_DEVICES} devices to be sent, {run.node} has {len(run.devices)}"
        )
        return Absent(text=text)
    return Energy(
        node=run.node,
        boot=run.boot,
        recording=recording.number,
        interval_ns=run.interval_ns,
        devices=[row_of_device(device) for device in run.devices],
        readings=[row_of_reading(reading) for reading in found.readings],
        more=found.more,
        live=recording.ended_mono_ns is None,
    )
