"""What all counters of a node showed at one moment.

Covers: the value that is recorded, and its bounds. Does not cover: making one (emlio.energy.meter), energy between two of
them (emlio.energy.series).
"""

from dataclasses import dataclass

from emlio.energy.counter import Event
from emlio.energy.device import Device
from emlio.energy.domain import Method
from emlio.errors import ConfigError

__all__ = ["Reading", "may_lack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One pass over all devices. What is not there is None, never 0.

    Attributes:
        seq: its number in the recording, from 0.
        mono_ns: the middle of the pass, by CLOCK_MONOTONIC of the node.
        real_ns: the same moment by CLOCK_REALTIME, for people and other programs; it may jump.
        spread_ns: how long the pass took. A counter was read at most half of it from the middle.
        totals: microjoules of each device since the recording began, unwrapped; None where it could not be read.
        events: what happened to each device besides; empty where nothing did.
        missed: moments of the schedule that passed without a reading, between the one before and this.
        edge: whether somebody asked for it, outside the schedule.
        cpu_busy_ns: time that all processors together worked, since the machine started.
        cpu_steal_ns: time that they had work and the host let others run.
        cpu_total_ns: all their time; busy, stolen or idle.
        net_rx_bytes: what its network interfaces received, those to itself left out.
        net_tx_bytes: what they sent.
        memory_bytes: memory in use.
    """

    seq: int
    mono_ns: int
    real_ns: int
    spread_ns: int
    totals: tuple[int | None, ...]
    events: tuple[Event, ...] = ()
    missed: int = 0
    edge: bool = False
    cpu_busy_ns: int | None = None
    cpu_steal_ns: int | None = None
    cpu_total_ns: int | None = None
    net_rx_bytes: int | None = None
    net_tx_bytes: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.seq < 0 or self.spread_ns < 0 or self.missed < 0:
            raise ConfigError(
                f"a reading's number, spread and missed moments must not be below 0, got {self.seq}, {self.spread_ns} ns "
                f"and {self.missed}"
            )
        if any(total is not None and total < 0 for total in self.totals):
            raise ConfigError(f"a total must not be below 0, got {min(filter(None, self.totals))} µJ in {self.seq}")
        if self.events and len(self.events) != len(self.totals):
            raise ConfigError(f"events must be of all {len(self.totals)} devices or none, got {len(self.events)}")

    def event(self, place: int) -> Event:
        """What happened to the device at this place."""
        return self.events[place] if self.events else Event.NONE


def may_lack(device: Device, reading: Reading, place: int) -> bool:
    """Whether the device may have used more since the reading before than its totals say.

    A counter that could not be read for a moment has counted meanwhile; a sensor of power has not.

    Args:
        device: the one at `place`.
        reading: what showed it.
        place: of the device in the reading.
    """
    event = reading.event(place)
    if event is Event.GAP:
        return device.method is Method.DERIVED or reading.totals[place] is not None
    return event in (Event.RESET, Event.GLITCH)
