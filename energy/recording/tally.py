"""Running totals of a recording."""

from collections import Counter
from collections.abc import Iterable, Sequence

from emlio.energy.values.counter import Event
from emlio.energy.values.device import Device
from emlio.energy.values.reading import Reading, may_lack

__all__ = ["DeviceTally", "Tally"]


class DeviceTally:
    """The running totals of one device. An unknown value is None, never 0.

    Attributes:
        device: the device.
        events: how often each event was seen.
        unreadable: readings in which the device had no value.
        last_uj: its total in the last reading.
        lower_bound: whether it may have used more, because some of its energy could not be counted.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.events: Counter[Event] = Counter()
        self.unreadable = 0
        self.last_uj: int | None = None
        self.lower_bound = False
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None

    def add(self, reading: Reading, place: int) -> None:
        """Add the next reading."""
        event, total_uj = reading.event(place), reading.totals[place]
        if event is not Event.NONE:
            self.events[event] += 1
        self.last_uj = total_uj
        if self._first is not None and may_lack(self.device, reading, place):
            self.lower_bound = True
        if total_uj is None:
            self.unreadable += 1
            return
        self._last = (reading.mono_ns, total_uj)
        self._first = self._first or self._last

    @property
    def duration_ns(self) -> int:
        """The time between its first value and its last."""
        return 0 if self._first is None or self._last is None else self._last[0] - self._first[0]

    @property
    def energy_uj(self) -> int | None:
        """The energy between its first value and its last; None without two values."""
        if self._first is None or self._last is None or not self.duration_ns:
            return None
        return self._last[1] - self._first[1]

    @property
    def mean_watts(self) -> float | None:
        """The mean power over that time."""
        return None if self.energy_uj is None else self.energy_uj * 1000 / self.duration_ns


class Tally:
    """The running totals of all devices.

    Attributes:
        devices: in the order of the readings' totals.
        readings: how many there were.
        missed: scheduled moments without a reading.
        edges: readings outside the schedule: those on request, and the last one.
        most_spread_ns: duration of the longest pass.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = tuple(DeviceTally(device) for device in devices)
        self.readings = 0
        self.missed = 0
        self.edges = 0
        self.most_spread_ns = 0
        self._first: Reading | None = None
        self._last: Reading | None = None
        self._spread_ns = 0

    @classmethod
    def of(cls, devices: Sequence[Device], readings: Iterable[Reading]) -> "Tally":
        """Add up a recording."""
        tally = cls(devices)
        for reading in readings:
            tally.add(reading)
        return tally

    def add(self, reading: Reading) -> None:
        """Add the next reading."""
        for place, device in enumerate(self.devices):
            device.add(reading, place)
        self.readings += 1
        self.missed += reading.missed
        self.edges += reading.edge
        self.most_spread_ns = max(self.most_spread_ns, reading.spread_ns)
        self._spread_ns += reading.spread_ns
        self._first = self._first or reading
        self._last = reading

    @property
    def duration_ns(self) -> int:
        """The time between the first reading and the last."""
        return 0 if self._first is None or self._last is None else self._last.mono_ns - self._first.mono_ns

    @property
    def mean_spread_ns(self) -> float | None:
        """The mean duration of a pass."""
        return self._spread_ns / self.readings if self.readings else None

    @property
    def busy(self) -> float | None:
        """The share of time that the node's processors were busy, from 0 to 1.

        None where it is unknown.
        """
        busy_ns, total_ns = self._rise("cpu_busy_ns"), self._rise("cpu_total_ns")
        return busy_ns / total_ns if busy_ns is not None and total_ns else None

    @property
    def net_rx_bytes(self) -> int | None:
        """The bytes that the node received; None where they are unknown."""
        return self._rise("net_rx_bytes")

    @property
    def net_tx_bytes(self) -> int | None:
        """The bytes that the node sent; None where they are unknown."""
        return self._rise("net_tx_bytes")

    def _rise(self, name: str) -> int | None:
        first, last = (None if one is None else getattr(one, name) for one in (self._first, self._last))
        return None if first is None or last is None else last - first
