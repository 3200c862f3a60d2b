"""A node's recordings in one SQLite file.

Covers: creating and opening the file, writing while others read, files left by a killed writer,
deleting old readings. Does not cover: the tables (emlio.energy.recording.schema), when to write
(emlio.energy.recording.writer).
"""

import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from emlio.clocks.exchange import Offset
from emlio.energy.recording import schema
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span
from emlio.errors import ConfigError

__all__ = ["Recording", "Store"]

_PATIENCE_S = 10.0
"""The time to wait for another process that is writing."""

_LAST_SEQ = 2**62


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
                    for statement in filter(str.strip, schema.TABLES.split(";")):
                        database.execute(statement)
                    database.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                    database.execute(f"PRAGMA user_version = {schema.VERSION}")
        self._check()
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")

    def _check(self) -> None:
        if self._pragma("application_id") != schema.APPLICATION_ID:
            raise ConfigError(f"{self.path} is not an energy recording")
        if (version := self._pragma("user_version")) != schema.VERSION:
            raise ConfigError(f"{self.path} must be a recording of version {schema.VERSION}, got version {version}")

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _told(self) -> Generator[None]:
        """Convert SQLite's errors to ConfigError."""
        try:
            yield
        except ConfigError:
            raise
        except (sqlite3.Error, ValueError) as error:  # other programs may have changed a value
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
        with self._told(), self._transaction():
            number = self._database.execute(schema.INSERT_RUN, schema.run_row(run)).lastrowid
            if number is None:
                raise ValueError("SQLite gave the new run no number")
            rows = [(number, place, *schema.device_row(device)) for place, device in enumerate(run.devices)]
            self._database.executemany(schema.INSERT_DEVICE, rows)
            return number

    def append(self, number: int, readings: Sequence[Reading]) -> None:
        """Add readings to a recording, all or none."""
        with self._told(), self._transaction():
            self._database.executemany(schema.INSERT_TICK, [schema.tick_row(number, one) for one in readings])
            rows = [row for reading in readings for row in schema.sample_rows(number, reading)]
            self._database.executemany(schema.INSERT_SAMPLE, rows)

    def add_spans(self, number: int, spans: Iterable[Span]) -> None:
        """Add activity of threads on the recording's node, by its CLOCK_MONOTONIC."""
        with self._told(), self._transaction():
            self._database.executemany(schema.INSERT_SPAN, [(number, *schema.span_row(span)) for span in spans])

    def add_offsets(self, number: int, offsets: Iterable[Offset]) -> None:
        """Add measured offsets of other nodes' clocks."""
        with self._told(), self._transaction():
            self._database.executemany(schema.INSERT_OFFSET, [(number, *schema.offset_row(one)) for one in offsets])

    def end(self, number: int, at_ns: int) -> None:
        """Note that a recording ended normally, by the node's CLOCK_MONOTONIC."""
        with self._told(), self._transaction():
            self._database.execute("UPDATE run SET ended_mono_ns = ? WHERE id = ?", (at_ns, number))

    def forget_before(self, number: int, at_ns: int) -> int:
        """Delete a recording's readings from before a moment, and return their number.

        The file reuses their space.
        """
        with self._told(), self._transaction():
            (first,) = self._database.execute(
                "SELECT min(seq) FROM tick WHERE run = ? AND mono_ns >= ?", (number, at_ns)
            ).fetchone()
            if first is None:
                return 0
            self._database.execute("DELETE FROM sample WHERE run = ? AND seq < ?", (number, first))
            return self._database.execute("DELETE FROM tick WHERE run = ? AND seq < ?", (number, first)).rowcount

    # ---- reading ----

    def recordings(self) -> tuple[Recording, ...]:
        """Return the file's recordings, in the order in which they began."""
        with self._told(), self._transaction("DEFERRED"):
            found: list[Recording] = []
            for number, ended_ns, *row in self._database.execute(schema.SELECT_RUNS).fetchall():
                devices = self._database.execute(schema.SELECT_DEVICES, (number,))
                run = schema.run_value(row, tuple(schema.device_value(device) for device in devices))
                found.append(Recording(number=number, run=run, ended_mono_ns=ended_ns))
            return tuple(found)

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
            first = from_seq if from_ns is None else max(from_seq, self._last_until(number, from_ns))
            last = _LAST_SEQ if to_ns is None else self._first_from(number, to_ns)
            ticks = self._database.execute(schema.SELECT_TICKS, (number, first, last))
            samples = self._database.execute(schema.SELECT_SAMPLES, (number, first, last))
            yield from schema.join_readings(ticks, samples, devices)

    def _last_until(self, number: int, at_ns: int) -> int:
        """Return the number of the last reading up to a moment; 0 where there is none."""
        after = self._first_from(number, at_ns + 1)
        row = self._database.execute("SELECT max(seq) FROM tick WHERE run = ? AND seq < ?", (number, after)).fetchone()
        return 0 if row[0] is None else int(row[0])

    def _first_from(self, number: int, at_ns: int) -> int:
        """Return the number of the first reading from a moment on.

        It is found by bisection, since a recording may be months long.
        """
        low, (most,) = 0, self._database.execute("SELECT max(seq) FROM tick WHERE run = ?", (number,)).fetchone()
        high = found = _LAST_SEQ if most is None else int(most) + 1
        while low < high and most is not None:
            middle = (low + high) // 2
            seq, mono_ns = self._database.execute(
                "SELECT seq, mono_ns FROM tick WHERE run = ? AND seq >= ? ORDER BY seq LIMIT 1", (number, middle)
            ).fetchone()
            if mono_ns >= at_ns:
                high, found = middle, seq
            else:
                low = seq + 1
        return int(found)

    def load(self, number: int | None = None, *, from_ns: int | None = None, to_ns: int | None = None) -> Series:
        """Return a recording, or the part that energy between two moments needs.

        The arguments are those of `readings`.
        """
        devices = self.recording(number).run.devices
        return Series(devices=devices, readings=tuple(self.readings(number, from_ns=from_ns, to_ns=to_ns)))

    def spans(self, number: int | None = None) -> tuple[Span, ...]:
        """Return the activity of threads, ordered by start."""
        number = self.recording(number).number
        with self._told():
            return tuple(schema.span_value(row) for row in self._database.execute(schema.SELECT_SPANS, (number,)))

    def offsets(self, number: int | None = None) -> tuple[Offset, ...]:
        """Return the measured offsets of other nodes' clocks, in the order of time."""
        number = self.recording(number).number
        with self._told():
            return tuple(schema.offset_value(row) for row in self._database.execute(schema.SELECT_OFFSETS, (number,)))

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _uri(path: Path) -> str:
    return f"file:{quote(str(path.absolute()))}"


def _opened(uri: str, patience_s: float) -> sqlite3.Connection:
    # Only this class begins transactions. The thread that uses the connection may differ from the
    # one that made it, but only one uses it at a time.
    return sqlite3.connect(uri, uri=True, timeout=patience_s, isolation_level=None, check_same_thread=False)
