"""The tables of a recording's file, and the conversion of rows to values.

Covers: the tables' SQL, rows to values and back. Does not cover: opening, reading and writing the
file (emlio.energy.recording.store).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from emlio.clocks.exchange import Offset
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Device
from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.energy.values.spans import Span, Stage

__all__ = [
    "APPLICATION_ID",
    "INSERT_DEVICE",
    "INSERT_OFFSET",
    "INSERT_RUN",
    "INSERT_SAMPLE",
    "INSERT_SPAN",
    "INSERT_TICK",
    "SELECT_DEVICES",
    "SELECT_OFFSETS",
    "SELECT_RUNS",
    "SELECT_SAMPLES",
    "SELECT_SPANS",
    "SELECT_TICKS",
    "TABLES",
    "VERSION",
    "device_row",
    "device_value",
    "join_readings",
    "offset_row",
    "offset_value",
    "run_row",
    "run_value",
    "sample_rows",
    "span_row",
    "span_value",
    "tick_row",
]

APPLICATION_ID = 0x454D4C4F
"""The number that marks the file as EMLIO's, also for SQLite's own tools."""

VERSION = 1
"""The version of the tables. A file of another version is refused."""

_TICK = (
    "seq, mono_ns, real_ns, spread_ns, missed, edge, cpu_busy_ns, cpu_steal_ns, cpu_total_ns, net_rx_bytes, net_tx_bytes, "
    "memory_bytes"
)
_DEVICE = "name, domain, source, method, range_uj, most_watts, rated_watts, error, note, adds"
_SPAN = "stage, start_ns, end_ns, thread"
_OFFSET = "node, at_ns, offset_ns, error_ns, round_trip_ns"
_RUN = "node, interval_ns, begun_mono_ns, begun_real_ns, boot, version, warnings, facts"

# Rows of a run are inserted in the order of time, so a file grows at its end. NULL is a missing
# value.
TABLES = """
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
CREATE TABLE span (run INTEGER NOT NULL, stage TEXT NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    thread TEXT NOT NULL);
CREATE INDEX span_of_run ON span (run, start_ns);
CREATE TABLE offset (run INTEGER NOT NULL, node TEXT NOT NULL, at_ns INTEGER NOT NULL, offset_ns INTEGER NOT NULL,
    error_ns INTEGER NOT NULL, round_trip_ns INTEGER NOT NULL);
CREATE INDEX offset_of_run ON offset (run, at_ns);
"""

INSERT_RUN = f"INSERT INTO run ({_RUN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # the names are constants
INSERT_DEVICE = f"INSERT INTO device (run, dev, {_DEVICE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_TICK = f"INSERT INTO tick (run, {_TICK}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_SAMPLE = "INSERT INTO sample (run, seq, dev, uj, event) VALUES (?, ?, ?, ?, ?)"
SELECT_RUNS = f"SELECT id, ended_mono_ns, {_RUN} FROM run ORDER BY id"
SELECT_DEVICES = f"SELECT {_DEVICE} FROM device WHERE run = ? ORDER BY dev"
SELECT_TICKS = f"SELECT {_TICK} FROM tick WHERE run = ? AND seq BETWEEN ? AND ? ORDER BY seq"
SELECT_SAMPLES = "SELECT seq, uj, event FROM sample WHERE run = ? AND seq BETWEEN ? AND ? ORDER BY seq, dev"

INSERT_SPAN = f"INSERT INTO span (run, {_SPAN}) VALUES (?, ?, ?, ?, ?)"
INSERT_OFFSET = f"INSERT INTO offset (run, {_OFFSET}) VALUES (?, ?, ?, ?, ?, ?)"
SELECT_SPANS = f"SELECT {_SPAN} FROM span WHERE run = ? ORDER BY start_ns, end_ns"
SELECT_OFFSETS = f"SELECT {_OFFSET} FROM offset WHERE run = ? ORDER BY at_ns"


def run_row(run: Run) -> tuple[Any, ...]:
    """Return the values for `INSERT_RUN`."""
    return (
        run.node,
        run.interval_ns,
        run.begun_mono_ns,
        run.begun_real_ns,
        run.boot,
        run.version,
        json.dumps(list(run.warnings)),
        json.dumps(run.facts),
    )


def run_value(row: Sequence[Any], devices: tuple[Device, ...]) -> Run:
    """Return the run of a `SELECT_RUNS` row without its first two columns."""
    node, interval_ns, begun_mono_ns, begun_real_ns, boot, version, warnings, facts = row
    return Run(
        node=node,
        devices=devices,
        interval_ns=interval_ns,
        begun_mono_ns=begun_mono_ns,
        begun_real_ns=begun_real_ns,
        boot=boot,
        version=version,
        warnings=tuple(json.loads(warnings)),
        facts=json.loads(facts),
    )


def device_row(device: Device) -> tuple[Any, ...]:
    """Return the values for `INSERT_DEVICE`, after the run and the device's index."""
    return (
        device.name,
        str(device.domain),
        device.source,
        str(device.method),
        device.range_uj,
        device.most_watts,
        device.rated_watts,
        device.error,
        device.note,
        int(device.adds),
    )


def device_value(row: Sequence[Any]) -> Device:
    """Return the device of a `SELECT_DEVICES` row."""
    name, domain, source, method, range_uj, most_watts, rated_watts, error, note, adds = row
    return Device(
        name=name,
        domain=Domain(domain),
        source=source,
        method=Method(method),
        range_uj=range_uj,
        most_watts=most_watts,
        rated_watts=rated_watts,
        error=error,
        note=note,
        adds=bool(adds),
    )


def tick_row(run: int, reading: Reading) -> tuple[Any, ...]:
    """Return the values for `INSERT_TICK`."""
    return (
        run,
        reading.seq,
        reading.mono_ns,
        reading.real_ns,
        reading.spread_ns,
        reading.missed,
        int(reading.edge),
        reading.cpu_busy_ns,
        reading.cpu_steal_ns,
        reading.cpu_total_ns,
        reading.net_rx_bytes,
        reading.net_tx_bytes,
        reading.memory_bytes,
    )


def sample_rows(run: int, reading: Reading) -> Iterator[tuple[Any, ...]]:
    """Yield the values for `INSERT_SAMPLE`."""
    for place, total in enumerate(reading.totals):
        event = reading.event(place)
        yield run, reading.seq, place, total, None if event is Event.NONE else str(event)


def span_row(span: Span) -> tuple[Any, ...]:
    """Return the values for `INSERT_SPAN`, after the run."""
    return str(span.stage), span.start_ns, span.end_ns, span.thread


def span_value(row: Sequence[Any]) -> Span:
    """Return the span of a `SELECT_SPANS` row."""
    stage, start_ns, end_ns, thread = row
    return Span(stage=Stage(stage), start_ns=start_ns, end_ns=end_ns, thread=thread)


def offset_row(offset: Offset) -> tuple[Any, ...]:
    """Return the values for `INSERT_OFFSET`, after the run."""
    return offset.node, offset.at_ns, offset.offset_ns, offset.error_ns, offset.round_trip_ns


def offset_value(row: Sequence[Any]) -> Offset:
    """Return the offset of a `SELECT_OFFSETS` row."""
    node, at_ns, offset_ns, error_ns, round_trip_ns = row
    return Offset(node=node, at_ns=at_ns, offset_ns=offset_ns, error_ns=error_ns, round_trip_ns=round_trip_ns)


def join_readings(
    ticks: Iterable[Sequence[Any]], samples: Iterable[tuple[int, int | None, str | None]], devices: int
) -> Iterator[Reading]:
    """Join rows of `SELECT_TICKS` and `SELECT_SAMPLES`, which are in the same order."""
    left = iter(samples)
    for tick in ticks:
        found = [row for _, row in zip(range(devices), left, strict=False)]
        if len(found) != devices or any(seq != tick[0] for seq, _, _ in found):
            raise ValueError(f"reading {tick[0]} must have {devices} samples")
        marked = any(event is not None for _, _, event in found)
        yield Reading(
            seq=tick[0],
            mono_ns=tick[1],
            real_ns=tick[2],
            spread_ns=tick[3],
            totals=tuple(total for _, total, _ in found),
            events=tuple(Event.NONE if event is None else Event(event) for _, _, event in found) if marked else (),
            missed=tick[4],
            edge=bool(tick[5]),
            cpu_busy_ns=tick[6],
            cpu_steal_ns=tick[7],
            cpu_total_ns=tick[8],
            net_rx_bytes=tick[9],
            net_tx_bytes=tick[10],
            memory_bytes=tick[11],
        )
