"""Energy between any two moments of a recording."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

from emlio.energy.values.device import Device
from emlio.energy.values.reading import Reading, may_lack
from emlio.errors import ConfigError

__all__ = ["Series"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Points:
    """The known totals of one device."""

    place: int
    times_ns: tuple[int, ...]
    totals_uj: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The energy of a node's devices over time.

    Power is assumed to be constant between two readings. Energies of adjacent periods add up
    exactly, to the microjoule, wherever they are cut.

    Attributes:
        devices: in the order of the readings' totals.
        readings: in the order of time.
    """

    devices: tuple[Device, ...]
    readings: tuple[Reading, ...]
    _points: dict[str, _Points] = field(init=False, repr=False, compare=False)
    _times_ns: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        if len(set(names)) != len(names):
            raise ConfigError(f"the devices of a series must have names of their own, got {names}")
        for reading in self.readings:
            if len(reading.totals) != len(names):
                raise ConfigError(
                    f"reading {reading.seq} must have a total for each of {len(names)} devices, got {len(reading.totals)}"
                )
        for before, after in pairwise(self.readings):
            if after.mono_ns <= before.mono_ns:
                raise ConfigError(f"readings must be in order of time, got {after.seq} after {before.seq}")
        object.__setattr__(self, "_times_ns", tuple(reading.mono_ns for reading in self.readings))
        object.__setattr__(self, "_points", {name: self._points_of(name, place) for place, name in enumerate(names)})

    def _points_of(self, name: str, place: int) -> _Points:
        known = [(reading.mono_ns, total) for reading in self.readings if (total := reading.totals[place]) is not None]
        for (_, before), (_, after) in pairwise(known):
            if after < before:
                raise ConfigError(f"the total of {name} must not fall, got {after} µJ after {before} µJ")
        return _Points(place=place, times_ns=tuple(at for at, _ in known), totals_uj=tuple(total for _, total in known))

    @property
    def start_ns(self) -> int | None:
        """The time of the first reading; None without readings."""
        return self._times_ns[0] if self._times_ns else None

    @property
    def end_ns(self) -> int | None:
        """The time of the last reading; None without readings."""
        return self._times_ns[-1] if self._times_ns else None

    def total_uj(self, device: str, at_ns: int) -> int | None:
        """Return the device's total at a moment; None before its first value and after its last."""
        known = self._known(device)
        times_ns, totals_uj = known.times_ns, known.totals_uj
        after = bisect_left(times_ns, at_ns)
        if after == len(times_ns):
            return None
        if times_ns[after] == at_ns:
            return totals_uj[after]
        if after == 0:
            return None
        before = after - 1
        rise_uj, length_ns = totals_uj[after] - totals_uj[before], times_ns[after] - times_ns[before]
        return totals_uj[before] + rise_uj * (at_ns - times_ns[before]) // length_ns

    def energy_uj(self, device: str, from_ns: int, to_ns: int) -> int | None:
        """Return the microjoules that the device used from one moment to another.

        Args:
            device: its name.
            from_ns: by the node's CLOCK_MONOTONIC.
            to_ns: not before `from_ns`.

        Returns:
            None where either moment lies outside the device's known values.
        """
        if to_ns < from_ns:
            raise ConfigError(f"a stretch must not end before it begins, got {from_ns} ns to {to_ns} ns")
        begun, ended = self.total_uj(device, from_ns), self.total_uj(device, to_ns)
        return None if begun is None or ended is None else ended - begun

    def is_lower_bound(self, device: str, from_ns: int, to_ns: int) -> bool:
        """Return whether the device may have used more than `energy_uj` returns.

        That is so if some of its energy could not be counted.
        """
        place = self._known(device).place
        return any(may_lack(self.devices[place], reading, place) for reading in self._closing(from_ns, to_ns))

    def missed(self, from_ns: int, to_ns: int) -> int:
        """Return the number of missed moments, up to the reading that closes this period."""
        return sum(reading.missed for reading in self._closing(from_ns, to_ns))

    def _closing(self, from_ns: int, to_ns: int) -> tuple[Reading, ...]:
        """Return the readings whose totals include energy used between these moments."""
        first = bisect_right(self._times_ns, from_ns)
        return self.readings[first : bisect_left(self._times_ns, to_ns) + 1]

    def _known(self, device: str) -> _Points:
        try:
            return self._points[device]
        except KeyError:
            names = ", ".join(self._points) or "none"
            raise ConfigError(f"a device must be one of {names}, got {device!r}") from None
