"""What a node draws when it has nothing to do.

Covers: watts of each device, measured in a quiet part of a recording or given; finding that part. Does not cover: what they are
used for (emlio.energy.stages, emlio.energy.plausibility).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import stdev

from emlio.energy.series import Series
from emlio.energy.window import Window
from emlio.errors import ConfigError

__all__ = ["Baseline", "Idle", "measure_idle", "quietest"]

_PIECE_NS = 1_000_000_000
"""What the spread is of: long enough that a counter's refresh does not show in it."""

_LEAST_PIECES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """One device at rest.

    Attributes:
        device: its name.
        watts: the mean.
        spread_watts: standard deviation of its seconds; None where the watts were given.
        duration_ns: how long it was measured; None where they were given.
    """

    device: str
    watts: float
    spread_watts: float | None = None
    duration_ns: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.watts < float("inf"):
            raise ConfigError(f"the idle watts of {self.device} must be 0 or more, got {self.watts}")
        if (self.spread_watts is None) is not (self.duration_ns is None):
            raise ConfigError(f"idle watts of {self.device} that were measured must have a spread and a duration")

    def energy_uj(self, duration_ns: int) -> int:
        """What it draws at rest in this time."""
        return round(self.watts * duration_ns / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A node at rest.

    Attributes:
        idles: of the devices that something is known of.
    """

    idles: tuple[Idle, ...] = ()

    def __post_init__(self) -> None:
        names = [idle.device for idle in self.idles]
        if len(set(names)) != len(names):
            raise ConfigError(f"a device must have one baseline, got {names}")

    @classmethod
    def given(cls, watts: Mapping[str, float]) -> "Baseline":
        """Of watts by the name of the device."""
        return cls(idles=tuple(Idle(device=name, watts=value) for name, value in watts.items()))

    def idle(self, device: str) -> Idle | None:
        """Of one device; None where nothing is known."""
        return next((idle for idle in self.idles if idle.device == device), None)


def measure_idle(window: Window) -> Baseline:
    """The mean power of every device in a quiet part of a recording.

    A device that was not recorded throughout, or not all of whose energy was counted, is left out.
    """
    pieces = window.duration_ns // _PIECE_NS
    if pieces < _LEAST_PIECES:
        raise ConfigError(
            f"a baseline must be measured for {_LEAST_PIECES} s or more, got {window.duration_ns / 1e9:.1f} s"
        )
    idles = [_idle(window, device.name, pieces) for device in window.series.devices]
    return Baseline(idles=tuple(idle for idle in idles if idle is not None))


def _idle(window: Window, device: str, pieces: int) -> Idle | None:
    whole_uj = window.energy_uj(device)
    if whole_uj is None or window.series.is_lower_bound(device, window.from_ns, window.to_ns):
        return None
    edges = [window.from_ns + number * _PIECE_NS for number in range(pieces + 1)]
    seconds = [window.series.energy_uj(device, begun, ended) for begun, ended in pairwise(edges)]
    return Idle(
        device=device,
        watts=whole_uj * 1000 / window.duration_ns,
        spread_watts=stdev(uj * 1e9 / _PIECE_NS / 1e6 for uj in seconds if uj is not None),
        duration_ns=window.duration_ns,
    )


def quietest(series: Series, duration_ns: int) -> Window | None:
    """The part of this length that used least, of all devices that add up; None where the recording is shorter.

    The least of many is below the mean of them, by about the spread that `measure_idle` tells.
    """
    best: tuple[int, Window] | None = None
    for reading in series.readings:
        window = Window(series=series, from_ns=reading.mono_ns, to_ns=reading.mono_ns + duration_ns)
        parts = [window.energy_uj(device.name) for device in series.devices if device.adds]
        known = [part for part in parts if part is not None]
        if known and len(known) == len(parts) and (best is None or sum(known) < best[0]):
            best = (sum(known), window)
    return best[1] if best else None
