"""Conversion of devices and readings to rows of control messages, and back.

Covers: both directions, and rejecting invalid values. Does not cover: the rows' limits
(emlio.wire.energy), the recording (emlio.energy.recording.store).
"""

from emlio.energy.values.counter import Event
from emlio.energy.values.device import Device
from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.reading import Reading
from emlio.errors import ConfigError, RemoteProtocolError
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.limits import MAX_NOTE_LENGTH

__all__ = ["device_of", "reading_of", "row_of_device", "row_of_reading"]


def row_of_device(device: Device) -> DeviceRow:
    """Return the row of a device. A note that is too long is truncated."""
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
    """Return the device that a row describes.

    Raises:
        RemoteProtocolError: the row's values are invalid.
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
        raise RemoteProtocolError(f"a recording has an invalid device: {error}") from error


def row_of_reading(reading: Reading) -> ReadingRow:
    """Return the row of a reading."""
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
    """Return the reading that a row describes.

    Raises:
        RemoteProtocolError: the row's values are invalid.
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
        raise RemoteProtocolError(f"a recording has an invalid reading {row.seq}: {error}") from error
