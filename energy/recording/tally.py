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
        last_uj: its total in the last reading.
        lower_bound: whether it may have used more, because some of its energy could not be counted.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.events: Counter[Event] = Counter()
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
        if total_uj is not None:
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
        duration_ns: the time between the first reading and the last.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = tuple(DeviceTally(device) for device in devices)
        self.readings = 0
        self.missed = 0
        self.duration_ns = 0
        self._begun_ns = 0

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
        if not self.readings:
            self._begun_ns = reading.mono_ns
        self.duration_ns = reading.mono_ns - self._begun_ns
        self.readings += 1
        self.missed += reading.missed
