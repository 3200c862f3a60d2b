"""The energy that a daemon's node used, as its recorder has it.

Covers: the value, made from the parts received; checking them. Pure. Does not cover: asking
(emlio.receiver.engine.energy_questions).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.clocks.fit import ClockFit
from emlio.energy.export.wire_rows import device_of, reading_of
from emlio.energy.job.epoch_energy import NodeRecord, Role
from emlio.energy.values.series import Series
from emlio.errors import ConfigError, RemoteProtocolError
from emlio.wire.questions import Energy

__all__ = ["DaemonEnergy", "Gathered", "energy_of"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonEnergy:
    """A daemon's answer.

    Attributes:
        daemon: the daemon's address.
        node: the name of its node; empty if it did not say.
        boot: the boot of the node that the series' clock belongs to. Daemons with the same boot are
            on the same node, which must be counted once.
        series: the recording around the requested interval, by that clock; None if there is none.
        clock: that clock relative to this process's; None if they were not compared.
        interval_ns: of the recorder's schedule; 0 without a series.
        absent: why there is no series.
    """

    daemon: str
    node: str = ""
    boot: str = ""
    series: Series | None = None
    clock: ClockFit | None = None
    interval_ns: int = 0
    absent: str = ""

    def __post_init__(self) -> None:
        if (self.series is None) is not bool(self.absent):
            raise ConfigError(
                f"the energy of {self.daemon} must have either readings or a reason for their absence, got "
                f"{self.absent!r}"
            )

    @property
    def record(self) -> NodeRecord | None:
        """The storage node's record for `measure_epoch`; None without a series."""
        if self.series is None:
            return None
        return NodeRecord(node=self.node, role=Role.STORAGE, series=self.series, clock=self.clock)


def energy_of(gathered: Gathered, clock: ClockFit | None) -> DaemonEnergy:
    """Join the parts. Parts that do not fit each other count as absent."""
    if not gathered.parts:
        return DaemonEnergy(
            daemon=gathered.daemon, clock=clock, absent=gathered.absent or "the daemon has not answered"
        )
    first = gathered.parts[0]
    try:
        series = _series(gathered.parts)
    except (ConfigError, RemoteProtocolError) as error:
        absent = f"the daemon sent an invalid answer: {error}"
        return DaemonEnergy(daemon=gathered.daemon, node=first.node, boot=first.boot, clock=clock, absent=absent)
    return DaemonEnergy(
        daemon=gathered.daemon,
        node=first.node,
        boot=first.boot,
        series=series,
        clock=clock,
        interval_ns=first.interval_ns,
    )


def _series(parts: Sequence[Energy]) -> Series:
    first = parts[0]
    if not first.node or any(part.devices != first.devices for part in parts):
        raise RemoteProtocolError("all parts must be from one node with the same devices")
    devices = tuple(device_of(row) for row in first.devices)
    return Series(devices=devices, readings=tuple(reading_of(row) for part in parts for row in part.readings))
