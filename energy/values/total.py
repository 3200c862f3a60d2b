"""Energy sums over several devices that keep their method, gaps and error."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from emlio.energy.values.device import Device, Method

__all__ = ["DeviceEnergy", "Total", "joules_of", "sum_of", "total_of"]


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


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of energies, as it stands in documents. It is exact to the microjoule.

    Attributes:
        joules: None where no part is known.
        method: the weakest of the parts' methods: a sum is measured only if all of it is.
        by_method: joules of the parts obtained by each method.
        error: the possible error of the estimates among them, relative to the sum; None where
            nothing is estimated.
        lacks: what is missing or only partly counted. With any, the sum is a lower bound.
    """

    joules: float | None
    method: Method | None = None
    by_method: dict[Method, float] = {}
    error: float | None = None
    lacks: tuple[str, ...] = ()

    @property
    def energy_uj(self) -> int | None:
        """Microjoules; None where no part is known."""
        return None if self.joules is None else _uj(self.joules)

    @property
    def is_estimate(self) -> bool:
        """True if a part is estimated."""
        return self.method == Method.ESTIMATED

    @property
    def error_joules(self) -> float:
        """The possible error of the estimates; 0 without any."""
        return abs(self.joules or 0.0) * (self.error or 0.0)


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
    return _total(used, round(error_uj), missing)


def sum_of(totals: Iterable[Total]) -> Total:
    """Add up sums."""
    used: dict[Method, int] = {}
    lacks: list[str] = []
    error_uj = 0
    for total in totals:
        for method, joules in total.by_method.items():
            used[method] = used.get(method, 0) + _uj(joules)
        lacks.extend(total.lacks)
        error_uj += _uj(total.error_joules)
    return _total(used, error_uj, lacks)


def _total(used: dict[Method, int], error_uj: int, lacks: Iterable[str]) -> Total:
    methods = [method for method in Method if method in used]  # from strongest to weakest
    energy_uj = sum(used.values())
    return Total(
        joules=energy_uj / 1e6 if used else None,
        method=methods[-1] if methods else None,
        by_method={method: used[method] / 1e6 for method in methods},
        error=error_uj / abs(energy_uj) if Method.ESTIMATED in used and energy_uj else None,
        lacks=tuple(dict.fromkeys(lacks)),
    )


def joules_of(energy_uj: int | None) -> float | None:
    """Return joules; None where they are unknown."""
    return None if energy_uj is None else energy_uj / 1e6


def _uj(joules: float) -> int:
    return round(joules * 1e6)
