"""The power of an idle node: watts of each device, measured in a quiet part of a recording or given."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from emlio.energy.values.total import DeviceEnergy
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["Baseline", "device_energies", "measure_idle"]

_LEAST_NS = 5_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The idle power of a node.

    Attributes:
        watts: of each device whose idle power is known, by name.
    """

    watts: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        for device, watts in self.watts.items():
            if not 0 <= watts < float("inf"):
                raise ConfigError(f"the idle watts of {device} must be 0 or more, got {watts}")

    def idle_uj(self, device: str, duration_ns: int) -> int | None:
        """Return the energy that the idle device uses in that time; None where it is unknown."""
        watts = self.watts.get(device)
        return None if watts is None else round(watts * duration_ns / 1000)


def measure_idle(window: Window) -> Baseline:
    """Return the mean power of every device in a quiet part of a recording.

    A device that was not recorded throughout is left out, and so is one whose total is a lower
    bound.
    """
    if window.duration_ns < _LEAST_NS:
        raise ConfigError(
            f"a baseline must be measured for at least {_LEAST_NS / 1e9:g} s, got {window.duration_ns / 1e9:.1f} s"
        )
    return Baseline(
        watts={
            device.name: energy_uj * 1000 / window.duration_ns
            for device in window.series.devices
            if (energy_uj := window.energy_uj(device.name)) is not None
            and not window.series.is_lower_bound(device.name, window.from_ns, window.to_ns)
        }
    )


def device_energies(window: Window, baseline: Baseline) -> tuple[DeviceEnergy, ...]:
    """Return the energy of each of the recording's devices in a window."""
    series, from_ns, to_ns = window.series, window.from_ns, window.to_ns
    return tuple(
        DeviceEnergy(
            device=device,
            energy_uj=window.energy_uj(device.name),
            idle_uj=baseline.idle_uj(device.name, window.duration_ns),
            uncounted=series.is_lower_bound(device.name, from_ns, to_ns),
        )
        for device in series.devices
    )
