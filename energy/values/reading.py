"""The values of all counters of a node at one moment."""

from dataclasses import dataclass

from emlio.energy.values.counter import Event
from emlio.energy.values.device import Device, Method
from emlio.errors import ConfigError

__all__ = ["Reading", "may_lack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One pass over all devices. A missing value is None, never 0.

    Attributes:
        seq: its number in the recording, from 0.
        mono_ns: the middle of the pass, by CLOCK_MONOTONIC of the node.
        real_ns: the same moment by CLOCK_REALTIME, for people and other programs; it may jump.
        spread_ns: duration of the pass. A counter was read at most half of it from the middle.
        totals: microjoules of each device since the recording began, unwrapped; None where it could
            not be read.
        events: irregularities of each device; empty where there are none.
        missed: scheduled moments without a reading between the previous one and this one.
        edge: whether it was made on request or at the end, outside the schedule.
        cpu_busy_ns: busy time of all processors together since boot.
        cpu_steal_ns: time in which they had work while the host ran other guests.
        cpu_total_ns: all their time; busy, stolen or idle.
        net_rx_bytes: bytes received on its network interfaces, except those from the node itself.
        net_tx_bytes: bytes sent on them.
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
                f"a reading's number, spread and missed count must be at least 0, got {self.seq}, {self.spread_ns} "
                f"ns and {self.missed}"
            )
        if any(total is not None and total < 0 for total in self.totals):
            raise ConfigError(f"a total must be at least 0, got {min(filter(None, self.totals))} µJ in {self.seq}")
        if self.events and len(self.events) != len(self.totals):
            raise ConfigError(
                f"events must be given for all {len(self.totals)} devices or none, got {len(self.events)}"
            )

    def event(self, place: int) -> Event:
        """Return the event of the device at this index."""
        return self.events[place] if self.events else Event.NONE


def may_lack(device: Device, reading: Reading, place: int) -> bool:
    """Return whether the device may have used more since the previous reading than its totals show.

    A counter that was unreadable for a moment kept counting; an integrated power sensor did not.

    Args:
        device: the one at `place`.
        reading: the reading.
        place: index of the device in the reading.
    """
    event = reading.event(place)
    if event is Event.GAP:
        return device.method is Method.DERIVED or reading.totals[place] is not None
    return event in (Event.RESET, Event.GLITCH)
