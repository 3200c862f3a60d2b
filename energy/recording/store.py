"""A node's recordings in one SQLite file."""

import json
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import msgspec

from emlio.energy.values.counter import Event
from emlio.energy.values.device import Device
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.energy.values.series import Series
from emlio.errors import ConfigError

__all__ = ["Recording", "Store"]

_PATIENCE_S = 10.0
"""The time to wait for another process that is writing."""

_LAST_SEQ = 2**62
_APPLICATION_ID = 0x454D4C4F
"""The number that marks the file as EMLIO's, also for SQLite's own tools."""

_VERSION = 1
"""The version of the tables. A file of another version is refused."""

# Rows of a run are inserted in the order of time, so a file grows at its end. NULL is a missing
# value. The columns have the names of the fields of Run, Device and Reading.
_TABLES = """
CREATE TABLE run (id INTEGER PRIMARY KEY, node TEXT NOT NULL, interval_ns INTEGER NOT NULL, begun_mono_ns INTEGER NOT NULL,
    begun_real_ns INTEGER NOT NULL, boot TEXT NOT NULL, version TEXT NOT NULL, warnings TEXT NOT NULL, facts TEXT NOT NULL,
    ended_mono_ns INTEGER);
CREATE TABLE device (run INTEGER NOT NULL, dev INTEGER NOT NULL, name TEXT NOT NULL, domain TEXT NOT NULL, source TEXT NOT NULL,
    method TEXT NOT NULL, range_uj INTEGER, most_watts REAL, rated_watts REAL, error REAL, note TEXT NOT NULL,
    adds INTEGER NOT NULL, PRIMARY KEY (run, dev)) WITHOUT ROWID;
CREATE TABLE tick (run INTEGER NOT NULL, seq INTEGER NOT NULL, mono_ns INTEGER NOT NULL, real_ns INTEGER NOT NULL,
    spread_ns INTEGER NOT NULL, missed INTEGER NOT NULL, edge INTEGER NOT NULL, cpu_busy_ns INTEGER, cpu_steal_ns INTEGER,
    cpu_total_ns INTEGER, net_rx_bytes INTEGER, net_tx_bytes INTEGER, memory_bytes INTEGER,
    PRIMARY KEY (run, seq)) WITHOUT ROWID;
CREATE TABLE sample (run INTEGER NOT NULL, seq INTEGER NOT NULL, dev INTEGER NOT NULL, uj INTEGER, event TEXT,
    PRIMARY KEY (run, seq, dev)) WITHOUT ROWID;
"""
_RUN = ("node", "interval_ns", "begun_mono_ns", "begun_real_ns", "boot", "version", "warnings", "facts")
_DEVICE = tuple(field.name for field in fields(Device))
_TICK = tuple(field.name for field in fields(Reading) if field.name not in ("totals", "events"))
_SAMPLE = ("seq", "dev", "uj", "event")


def _insert(table: str, *columns: str) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A run in a file.

    Attributes:
        number: of the run in the file, from 1.
        run: its header.
        ended_mono_ns: when its recorder ended; None while it records, and where it was killed.
    """

    number: int
    run: Run
    ended_mono_ns: int | None


class Store:
    """A file of recordings.

    It must be used by one thread at a time; any number of processes may have the file open.

    Readings survive the death of this process once `append` has returned. If the machine fails, the
    last readings may be lost, but the file stays intact.
    """

    def __init__(self, path: Path, *, read_only: bool = True, patience_s: float = _PATIENCE_S) -> None:
        """Open the file.

        Args:
            path: the file. It is created if it is opened for writing and does not exist.
            read_only: whether it is opened only for reading.
            patience_s: how long to wait for another process that has locked it.

        Raises:
            ConfigError: the file does not exist, is something else, or has another version.
        """
        self.path = path
        self._read_only = read_only
        self._closed = False
        with self._told():
            if read_only:
                if not path.is_file():
                    raise ConfigError(f"{path}: no such recording")
                self._database = _opened(f"{_uri(path)}?mode=ro", patience_s)
            else:
                self._database = _opened(_uri(path), patience_s)
        try:
            with self._told():
                if not read_only:
                    self._prepare()
                self._check()
        except BaseException:
            self._database.close()
            raise

    def _prepare(self) -> None:
        """Create the tables of a new file.

        Enable write-ahead logging, so that readers never wait.
        """
        database = self._database
        empty = not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if empty and self._pragma("application_id") == 0:
            with self._transaction():
                if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:  # still empty
                    for statement in filter(str.strip, _TABLES.split(";")):
                        database.execute(statement)
                    database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    database.execute(f"PRAGMA user_version = {_VERSION}")
        self._check()
        database.execute("CREATE INDEX IF NOT EXISTS tick_by_time ON tick (run, mono_ns)")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")

    def _check(self) -> None:
        if self._pragma("application_id") != _APPLICATION_ID:
            raise ConfigError(f"{self.path} is not an energy recording")
        if (version := self._pragma("user_version")) != _VERSION:
            raise ConfigError(f"{self.path} must be a recording of version {_VERSION}, got version {version}")

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _told(self) -> Generator[None]:
        """Convert SQLite's errors to ConfigError."""
        try:
            yield
        except ConfigError:
            raise
        except (sqlite3.Error, msgspec.ValidationError, ValueError) as error:  # other programs may change values
            raise ConfigError(f"the recording {self.path} cannot be used: {error}") from error

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Generator[None]:
        self._database.execute(f"BEGIN {kind}")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    # ---- writing ----

    def begin(self, run: Run) -> int:
        """Begin a recording and return its number."""
        told = {name: getattr(run, name) for name in _RUN}
        told.update(warnings=json.dumps(list(run.warnings)), facts=json.dumps(run.facts))
        with self._told(), self._transaction():
            number = self._database.execute(_insert("run", *_RUN), tuple(told.values())).lastrowid
            if number is None:
                raise ValueError("SQLite gave the new run no number")
            rows = [
                (number, place, *(getattr(device, name) for name in _DEVICE))
                for place, device in enumerate(run.devices)
            ]
            self._database.executemany(_insert("device", "run", "dev", *_DEVICE), rows)
            return number

    def append(self, number: int, readings: Sequence[Reading]) -> None:
        """Add readings to a recording, all or none."""
        ticks = [(number, *(getattr(reading, name) for name in _TICK)) for reading in readings]
        samples = [
            (number, reading.seq, place, total, None if event is Event.NONE else event)
            for reading in readings
            for place, total in enumerate(reading.totals)
            for event in [reading.event(place)]
        ]
        with self._told(), self._transaction():
            self._database.executemany(_insert("tick", "run", *_TICK), ticks)
            self._database.executemany(_insert("sample", "run", *_SAMPLE), samples)

    def end(self, number: int, at_ns: int) -> None:
        """Note that a recording ended normally, by the node's CLOCK_MONOTONIC."""
        with self._told(), self._transaction():
            self._database.execute("UPDATE run SET ended_mono_ns = ? WHERE id = ?", (at_ns, number))

    def forget_before(self, number: int, at_ns: int) -> int:
        """Delete a recording's readings from before a moment, and return their number.

        The file reuses their space.
        """
        with self._told(), self._transaction():
            first = self._seq_at(number, ">=", at_ns)
            if first is None:
                return 0
            self._database.execute("DELETE FROM sample WHERE run = ? AND seq < ?", (number, first))
            return self._database.execute("DELETE FROM tick WHERE run = ? AND seq < ?", (number, first)).rowcount

    # ---- reading ----

    def recordings(self) -> tuple[Recording, ...]:
        """Return the file's recordings, in the order in which they began."""
        with self._told(), self._transaction("DEFERRED"):
            runs = self._database.execute(f"SELECT id, ended_mono_ns, {', '.join(_RUN)} FROM run ORDER BY id")
            return tuple(self._recording(number, ended_ns, row) for number, ended_ns, *row in runs.fetchall())

    def _recording(self, number: int, ended_ns: int | None, row: Sequence[Any]) -> Recording:
        rows = self._database.execute(f"SELECT {', '.join(_DEVICE)} FROM device WHERE run = ? ORDER BY dev", (number,))
        devices = tuple(msgspec.convert(dict(zip(_DEVICE, one, strict=True)), Device, strict=False) for one in rows)
        told: dict[str, Any] = dict(zip(_RUN, row, strict=True))
        told.update(warnings=tuple(json.loads(told["warnings"])), facts=json.loads(told["facts"]))
        return Recording(number=number, run=Run(devices=devices, **told), ended_mono_ns=ended_ns)

    def recording(self, number: int | None = None) -> Recording:
        """Return one recording; the last one if no number is given."""
        found = self.recordings()
        chosen = [one for one in found if number is None or one.number == number]
        if not chosen:
            numbers = ", ".join(str(one.number) for one in found) or "none"
            wanted = "a recording" if number is None else f"recording {number}"
            raise ConfigError(f"{self.path} must hold {wanted}; it holds {numbers}")
        return chosen[-1]

    def readings(
        self, number: int | None = None, *, from_ns: int | None = None, to_ns: int | None = None, from_seq: int = 0
    ) -> Generator[Reading]:
        """Yield the readings of a recording one by one, from one consistent snapshot.

        A caller that stops early must close the generator.

        Args:
            number: of the recording; None for the last.
            from_ns: leave out readings before the last one up to this moment.
            to_ns: leave out readings after the first one from this moment on.
            from_seq: leave out readings with lower numbers.
        """
        recording = self.recording(number)
        number, devices = recording.number, len(recording.run.devices)
        with self._told(), self._transaction("DEFERRED"):
            first = 0 if from_ns is None else self._seq_at(number, "<=", from_ns) or 0
            last = None if to_ns is None else self._seq_at(number, ">=", to_ns)
            ticks, samples = (
                self._database.execute(
                    f"SELECT {columns} FROM {table} WHERE run = ? AND seq BETWEEN ? AND ? ORDER BY {order}",
                    (number, max(first, from_seq), _LAST_SEQ if last is None else last),
                )
                for table, columns, order in (
                    ("tick", ", ".join(_TICK), "seq"),
                    ("sample", "seq, uj, event", "seq, dev"),
                )
            )
            for tick in ticks:
                yield _reading(tick, list(islice(samples, devices)), devices)

    def _seq_at(self, number: int, condition: str, at_ns: int) -> int | None:
        """Return the number of the reading nearest to a moment on one side of it; None where there is none."""
        order = "DESC" if condition == "<=" else "ASC"
        row = self._database.execute(
            f"SELECT seq FROM tick WHERE run = ? AND mono_ns {condition} ? ORDER BY mono_ns {order} LIMIT 1",
            (number, at_ns),
        ).fetchone()
        return None if row is None else int(row[0])

    def load(self, number: int | None = None, *, from_ns: int | None = None, to_ns: int | None = None) -> Series:
        """Return a recording, or the part that energy between two moments needs.

        The arguments are those of `readings`.
        """
        devices = self.recording(number).run.devices
        return Series(devices=devices, readings=tuple(self.readings(number, from_ns=from_ns, to_ns=to_ns)))

    # ---- closing ----

    def close(self) -> None:
        """Close the file. Closing again does nothing.

        The last writer to close it leaves a single file without a write-ahead log.
        """
        if not self._read_only and not self._closed:
            # A single file can be copied as it is, and read where nothing can be written. This
            # fails while other processes have it open.
            with suppress(sqlite3.Error):
                self._database.execute("PRAGMA busy_timeout = 0")
                self._database.execute("PRAGMA journal_mode = DELETE")
        self._closed = True
        self._database.close()

    def __enter__(self) -> Self:
        """Itself, for `with`."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close."""
        self.close()


def _uri(path: Path) -> str:
    return f"file:{quote(str(path.absolute()))}"


def _opened(uri: str, patience_s: float) -> sqlite3.Connection:
    # Only this class begins transactions. The thread that uses the connection may differ from the
    # one that made it, but only one uses it at a time.
    return sqlite3.connect(uri, uri=True, timeout=patience_s, isolation_level=None, check_same_thread=False)


def _reading(tick: Sequence[Any], samples: Sequence[tuple[int, int | None, str | None]], devices: int) -> Reading:
    told = dict(zip(_TICK, tick, strict=True))
    if len(samples) != devices or any(seq != told["seq"] for seq, _, _ in samples):
        raise ValueError(f"reading {told['seq']} must have {devices} samples")
    marked = any(event is not None for _, _, event in samples)
    told.update(
        edge=bool(told["edge"]),
        totals=tuple(total for _, total, _ in samples),
        events=tuple(Event(event or Event.NONE) for _, _, event in samples) if marked else (),
    )
    return Reading(**told)
