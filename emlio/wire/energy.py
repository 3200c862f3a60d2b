"""Devices and readings of a recording of energy, as control messages carry them.

Covers: the rows with their bounds; rows to values and back. Does not cover: the messages (emlio.wire.control), the recording
(emlio.energy.store).
"""

from typing import Annotated

import msgspec

from emlio.energy.counter import Event
from emlio.energy.device import Device
from emlio.energy.domain import Domain, Method
from emlio.energy.reading import Reading
from emlio.errors import ConfigError, RemoteProtocolError
from emlio.wire.kinds import Count, Name, Named
from emlio.wire.limits import MAX_ENERGY_DEVICES, MAX_NOTE_LENGTH

__all__ = ["DeviceRow", "ReadingRow", "device_of", "reading_of", "row_of_device", "row_of_reading"]

_Note = Annotated[str, msgspec.Meta(max_length=MAX_NOTE_LENGTH)]
_Totals = Annotated[list[Count | None], msgspec.Meta(max_length=MAX_ENERGY_DEVICES)]
_Events = Annotated[list[Name], msgspec.Meta(max_length=MAX_ENERGY_DEVICES)]


class DeviceRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One device; see `emlio.energy.device.Device`."""

    name: Named
    domain: Name
    source: Name
    method: Name
    range_uj: Count | None
    most_watts: float | None
    rated_watts: float | None
    error: float | None
    note: _Note
    adds: bool


class ReadingRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One reading, times by the clocks of its node; see `emlio.energy.reading.Reading`."""

    seq: Count
    mono_ns: Count
    real_ns: Count
    spread_ns: Count
    totals: _Totals
    events: _Events
    missed: Count
    edge: bool
    cpu_busy_ns: Count | None
    cpu_steal_ns: Count | None
    cpu_total_ns: Count | None
    net_rx_bytes: Count | None
    net_tx_bytes: Count | None
    memory_bytes: Count | None


def row_of_device(device: Device) -> DeviceRow:
    """How it travels; a note that is too long is cut."""
    return DeviceRow(
        name=device.name,
        domain=str(device.domain),
        source=device.source,
        method=str(device.method),
        range_uj=device.range_uj,
        most_watts=device.most_watts,
        rated_watts=device.rated_watts,
        error=device.error,
        note=device.note[:MAX_NOTE_LENGTH],
        adds=device.adds,
    )


def device_of(row: DeviceRow) -> Device:
    """The device.

    Raises:
        RemoteProtocolError: there can be no such device.
    """
    try:
        return Device(
            name=row.name,
            domain=Domain(row.domain),
            source=row.source,
            method=Method(row.method),
            range_uj=row.range_uj,
            most_watts=row.most_watts,
            rated_watts=row.rated_watts,
            error=row.error,
            note=row.note,
            adds=row.adds,
        )
    except (ConfigError, ValueError) as error:
        raise RemoteProtocolError(f"a device of a recording must be one that there can be: {error}") from error


def row_of_reading(reading: Reading) -> ReadingRow:
    """How it travels."""
    return ReadingRow(
        seq=reading.seq,
        mono_ns=reading.mono_ns,
        real_ns=reading.real_ns,
        spread_ns=reading.spread_ns,
        totals=list(reading.totals),
        events=[str(event) for event in reading.events],
        missed=reading.missed,
        edge=reading.edge,
        cpu_busy_ns=reading.cpu_busy_ns,
        cpu_steal_ns=reading.cpu_steal_ns,
        cpu_total_ns=reading.cpu_total_ns,
        net_rx_bytes=reading.net_rx_bytes,
        net_tx_bytes=reading.net_tx_bytes,
        memory_bytes=reading.memory_bytes,
    )


def reading_of(row: ReadingRow) -> Reading:
    """The reading.

    Raises:
        RemoteProtocolError: there can be no such reading.
    """
    try:
        return Reading(
            seq=row.seq,
            mono_ns=row.mono_ns,
            real_ns=row.real_ns,
            spread_ns=row.spread_ns,
            totals=tuple(row.totals),
            events=tuple(Event(event) for event in row.events),
            missed=row.missed,
            edge=row.edge,
            cpu_busy_ns=row.cpu_busy_ns,
            cpu_steal_ns=row.cpu_steal_ns,
            cpu_total_ns=row.cpu_total_ns,
            net_rx_bytes=row.net_rx_bytes,
            net_tx_bytes=row.net_tx_bytes,
            memory_bytes=row.memory_bytes,
        )
    except (ConfigError, ValueError) as error:
        raise RemoteProtocolError(f"reading {row.seq} of a recording must be one that there can be: {error}") from error
