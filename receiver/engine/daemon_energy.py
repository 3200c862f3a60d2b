"""The energy that a daemon's node used, as its recorder has it, from the parts of an answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from emlio.clocks.fit import ClockFit
from emlio.energy.export.wire_rows import device_of, reading_of
from emlio.energy.job.journal import StorageEnergy
from emlio.energy.values.series import Series
from emlio.errors import ConfigError, RemoteProtocolError
from emlio.wire.questions import Energy

__all__ = ["Gathered", "energy_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The answers to one question.

    Attributes:
        daemon: the daemon's address.
        number: the number of its stream.
        parts: the answers, in the order of time.
        absent: why there are none; may be empty.
    """

    daemon: str
    number: int
    parts: tuple[Energy, ...] = ()
    absent: str = ""


def energy_of(gathered: Gathered, clock: ClockFit | None) -> StorageEnergy:
    """Join the parts. Parts that do not fit each other count as absent."""
    if not gathered.parts:
        return StorageEnergy(
            daemon=gathered.daemon, clock=clock, absent=gathered.absent or "the daemon has not answered"
        )
    first = gathered.parts[0]
    told = StorageEnergy(daemon=gathered.daemon, node=first.node, boot=first.boot, clock=clock)
    try:
        series = _series(gathered.parts)
    except (ConfigError, RemoteProtocolError) as error:
        return replace(told, absent=f"the daemon sent an invalid answer: {error}")
    return replace(told, devices=series.devices, readings=series.readings, interval_ns=first.interval_ns)


def _series(parts: Sequence[Energy]) -> Series:
    first = parts[0]
    if not first.node or any(part.devices != first.devices for part in parts):
        raise RemoteProtocolError("all parts must be from one node with the same devices")
    devices = tuple(device_of(row) for row in first.devices)
    return Series(devices=devices, readings=tuple(reading_of(row) for part in parts for row in part.readings))
