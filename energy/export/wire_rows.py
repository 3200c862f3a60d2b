"""Conversion of devices and readings to rows of control messages, and back."""

from dataclasses import replace

import msgspec

from emlio.energy.values.device import Device
from emlio.energy.values.reading import Reading
from emlio.errors import RemoteProtocolError
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.limits import MAX_NOTE_LENGTH

__all__ = ["device_of", "reading_of", "row_of_device", "row_of_reading"]


def row_of_device(device: Device) -> DeviceRow:
    """Return the row of a device. A note that is too long is truncated."""
    return msgspec.convert(replace(device, note=device.note[:MAX_NOTE_LENGTH]), DeviceRow, from_attributes=True)


def device_of(row: DeviceRow) -> Device:
    """Return the device that a row describes.

    Raises:
        RemoteProtocolError: the row's values are invalid.
    """
    try:
        return msgspec.convert(row, Device, from_attributes=True)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"a recording has an invalid device: {error}") from error


def row_of_reading(reading: Reading) -> ReadingRow:
    """Return the row of a reading."""
    return msgspec.convert(reading, ReadingRow, from_attributes=True)


def reading_of(row: ReadingRow) -> Reading:
    """Return the reading that a row describes.

    Raises:
        RemoteProtocolError: the row's values are invalid.
    """
    try:
        return msgspec.convert(row, Reading, from_attributes=True)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"a recording has an invalid reading {row.seq}: {error}") from error
