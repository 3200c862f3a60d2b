"""Energy sums over several devices that keep their method, gaps and error.

Covers: sums that say how they were obtained, what they lack and their possible error. Does not
cover: which devices belong together (emlio.energy.job.epoch_energy).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from emlio.energy.values.device import Device
from emlio.energy.values.domain import Method
from emlio.errors import ConfigError

__all__ = ["DeviceEnergy", "Total", "sum_of", "total_of"]

_WEAKER = (Method.MEASURED, Method.DERIVED, Method.ESTIMATED)
"""From strongest to weakest. A sum has the method of its weakest part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEnergy:
    """The energy of one device.

    Attributes:
        device: the device.
        energy_uj: microjoules; None where they are unknown.
        idle_uj: the energy of the idle device in the same time; None without a baseline.
        uncounted: whether it may have used more, because some of its energy could not be counted.
    """

    device: Device
    energy_uj: int | None
    idle_uj: int | None = None
    uncounted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """A sum of energies.

    Attributes:
        by_method: microjoules of the parts obtained by each method; empty where nothing is known.
        error_uj: the possible error of the estimates among them; 0 without any.
        lacks: devices that are missing or only partly counted. With any, the sum is a lower bound.
    """

    by_method: tuple[tuple[Method, int], ...]
    error_uj: int = 0
    lacks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        methods = [method for method, _ in self.by_method]
        if methods != [method for method in _WEAKER if method in methods]:
            raise ConfigError(f"the parts of a sum must be in order, one for each method, got {methods}")
        if self.error_uj < 0:
            raise ConfigError(f"the error of a sum must be at least 0, got {self.error_uj} µJ")

    @property
    def energy_uj(self) -> int | None:
        """Microjoules; None where no part is known."""
        return sum(energy_uj for _, energy_uj in self.by_method) if self.by_method else None

    @property
    def method(self) -> Method | None:
        """The weakest of the parts' methods: a sum is measured only if all of it is."""
        return self.by_method[-1][0] if self.by_method else None

    @property
    def mixed(self) -> bool:
        """True if the parts were obtained by different methods."""
        return len(self.by_method) > 1

    @property
    def at_least(self) -> bool:
        """True if a part is missing, so that the sum is a lower bound."""
        return bool(self.lacks)

    @property
    def error(self) -> float | None:
        """The possible error of the estimates, relative to the sum.

        None where nothing is estimated.
        """
        energy_uj = self.energy_uj
        return self.error_uj / abs(energy_uj) if self.method is Method.ESTIMATED and energy_uj else None


def total_of(parts: Iterable[DeviceEnergy], *, node: str, lacks: Iterable[str] = ()) -> Total:
    """Add up devices. Those that contain others are left out.

    Args:
        parts: of one node.
        node: its name, for naming missing parts.
        lacks: other missing parts, such as a domain that the node does not count.
    """
    used: dict[Method, int] = {}
    missing = list(lacks)
    error_uj = 0.0
    for part in parts:
        device = part.device
        if not device.adds:
            continue
        if part.energy_uj is None:
            missing.append(f"{device.name} of {node}")
            continue
        if part.uncounted:
            missing.append(f"some of {device.name} of {node}")
        used[device.method] = used.get(device.method, 0) + part.energy_uj
        error_uj += abs(part.energy_uj) * (device.error or 0.0)
    return Total(
        by_method=tuple((method, used[method]) for method in _WEAKER if method in used),
        error_uj=round(error_uj),
        lacks=tuple(dict.fromkeys(missing)),
    )


def sum_of(totals: Iterable[Total]) -> Total:
    """Add up sums."""
    used: dict[Method, int] = {}
    lacks: dict[str, None] = {}
    error_uj = 0
    for total in totals:
        for method, energy_uj in total.by_method:
            used[method] = used.get(method, 0) + energy_uj
        lacks.update(dict.fromkeys(total.lacks))
        error_uj += total.error_uj
    return Total(
        by_method=tuple((method, used[method]) for method in _WEAKER if method in used),
        error_uj=error_uj,
        lacks=tuple(lacks),
    )
