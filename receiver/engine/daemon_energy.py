"""The energy that a daemon's node used, as its recorder has it, from the parts of an answer."""

from collections.abc import Sequence
from dataclasses import replace

from emlio.clocks.fit import ClockFit
from emlio.energy.export.wire_rows import device_of, reading_of
from emlio.energy.job.journal import StorageEnergy
from emlio.energy.values.series import Series
from emlio.errors import ConfigError, RemoteProtocolError
from emlio.wire.questions import Energy

__all__ = ["energy_of"]


def energy_of(daemon: str, parts: Sequence[Energy], absent: str, clock: ClockFit | None) -> StorageEnergy:
    """Join the parts of an answer. Parts that do not fit each other count as absent.

    Args:
        daemon: the daemon's address.
        parts: in the order of time.
        absent: why there are none; may be empty.
        clock: the clock of the daemon's node; None where it was not compared.
    """
    if not parts:
        return StorageEnergy(daemon=daemon, clock=clock, absent=absent or "the daemon has not answered")
    told = StorageEnergy(daemon=daemon, node=parts[0].node, boot=parts[0].boot, clock=clock)
    try:
        series = _series(parts)
    except (ConfigError, RemoteProtocolError) as error:
        return replace(told, absent=f"the daemon sent an invalid answer: {error}")
    return replace(told, devices=series.devices, readings=series.readings, interval_ns=parts[0].interval_ns)


def _series(parts: Sequence[Energy]) -> Series:
    first = parts[0]
    if not first.node or any(part.devices != first.devices for part in parts):
        raise RemoteProtocolError("all parts must be from one node with the same devices")
    devices = tuple(device_of(row) for row in first.devices)
    return Series(devices=devices, readings=tuple(reading_of(row) for part in parts for row in part.readings))
