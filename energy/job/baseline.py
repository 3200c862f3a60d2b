"""The power of an idle node.

Watts of each device, measured in a quiet part of a recording or given.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import stdev

from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["Baseline", "Idle", "measure_idle"]

_PIECE_NS = 1_000_000_000
"""The interval of the standard deviation; long enough to hide a counter's refresh."""

_LEAST_PIECES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The idle power of one device.

    Attributes:
        device: its name.
        watts: the mean.
        spread_watts: standard deviation over intervals of one second; None where the watts were
            given.
        duration_ns: the length of the measurement; None where the watts were given.
    """

    device: str
    watts: float
    spread_watts: float | None = None
    duration_ns: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.watts < float("inf"):
            raise ConfigError(f"the idle watts of {self.device} must be 0 or more, got {self.watts}")
        if (self.spread_watts is None) is not (self.duration_ns is None):
            raise ConfigError(f"measured idle watts of {self.device} must have a spread and a duration")

    def energy_uj(self, duration_ns: int) -> int:
        """Return the energy that the idle device uses in `duration_ns`."""
        return round(self.watts * duration_ns / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The idle power of a node.

    Attributes:
        idles: one for each device whose idle power is known.
    """

    idles: tuple[Idle, ...] = ()

    def __post_init__(self) -> None:
        names = [idle.device for idle in self.idles]
        if len(set(names)) != len(names):
            raise ConfigError(f"a device must have one baseline, got {names}")

    @classmethod
    def given(cls, watts: Mapping[str, float]) -> "Baseline":
        """Make a baseline from watts by device name."""
        return cls(idles=tuple(Idle(device=name, watts=value) for name, value in watts.items()))

    def idle(self, device: str) -> Idle | None:
        """Return the idle power of one device; None where it is unknown."""
        return next((idle for idle in self.idles if idle.device == device), None)


def measure_idle(window: Window) -> Baseline:
    """Return the mean power of every device in a quiet part of a recording.

    A device that was not recorded throughout is left out, and so is one whose total is a lower
    bound.
    """
    pieces = window.duration_ns // _PIECE_NS
    if pieces < _LEAST_PIECES:
        raise ConfigError(
            f"a baseline must be measured for at least {_LEAST_PIECES} s, got {window.duration_ns / 1e9:.1f} s"
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
