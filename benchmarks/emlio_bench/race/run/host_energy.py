"""The energy of each host, by domain, at rest and above it.

On one machine, each of two real hosts would use its idle power for as long as a run takes. What the machine used
above its idle power is divided by processor time: a part to the consumer's processes, a part to the
server's, and the rest, the link's process and other programs, to neither. A GPU belongs to the
training host.

Covers: this division, and a host that is a machine of its own. Pure. Does not cover: recording (emlio_bench.race.run.joules).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from emlio.energy.job.baseline import Baseline
from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["by_host", "of_host"]

HostName = Literal["compute", "storage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEnergy:
    """The energy of a domain of one host: what it draws at rest, and more; with how it is known."""

    host: HostName
    domain: str
    idle_joules: float
    active_joules: float
    method: str

    def __post_init__(self) -> None:
        if self.idle_joules < 0 or self.active_joules < 0:
            raise ConfigError(f"the energy of a host must be 0 or more, got {self}")

    @property
    def joules(self) -> float:
        """All of it."""
        return self.idle_joules + self.active_joules


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The energy of a run.

    Attributes:
        joules: of both hosts, all epochs.
        method: how it is known.
        train_joules: while a step ran; None if not known.
        read_joules: while none ran.
        hosts: by host and domain, where the power at rest is known.
    """

    joules: float
    method: str
    train_joules: float | None = None
    read_joules: float | None = None
    hosts: tuple[HostEnergy, ...] = ()

    @property
    def told(self) -> str:
        """The method for each part, in words."""
        parts = dict.fromkeys(f"{one.host} {one.domain.upper()} {one.method}" for one in self.hosts)
        return ", ".join(parts) or self.method


Shares = tuple[tuple[HostName, float], ...]
"""The part of each host in the energy above rest."""

_WEAKEST: Final = (Method.ESTIMATED, Method.DERIVED, Method.MEASURED)


def by_host(window: Window, idle: Baseline, *, compute_cpu_ns: int, storage_cpu_ns: int) -> tuple[HostEnergy, ...]:
    """Divide the energy of a window; a device whose energy or idle power is unknown is left out.

    Args:
        window: the recording of the machine during a run.
        idle: power of the machine at rest.
        compute_cpu_ns: processor time of the consumer's processes.
        storage_cpu_ns: processor time of the server's processes.
    """
    busy_ns = max(window.cpu_busy_ns or 0, compute_cpu_ns + storage_cpu_ns, 1)
    shares: Shares = (("compute", compute_cpu_ns / busy_ns), ("storage", storage_cpu_ns / busy_ns))
    return _divided(window, idle, lambda domain: (("compute", 1.0),) if domain is Domain.GPU else shares)


def of_host(window: Window, idle: Baseline, host: HostName) -> tuple[HostEnergy, ...]:
    """Return the energy of a machine that is one host; what is unknown is left out.

    Args:
        window: the recording of the machine during a run.
        idle: power of the machine at rest.
        host: the host.
    """
    return _divided(window, idle, lambda _: ((host, 1.0),))


def _divided(window: Window, idle: Baseline, shares_of: Callable[[Domain], Shares]) -> tuple[HostEnergy, ...]:
    found: list[HostEnergy] = []
    for domain, devices in groupby(sorted(_adding(window), key=_domain), key=_domain):
        parts = list(devices)
        resting_j, more_j = (sum(of) for of in zip(*(_parts(window, idle, device) for device in parts), strict=True))
        method = min((device.method for device in parts), key=_WEAKEST.index)
        error = max((device.error or 0.0 for device in parts), default=0.0)
        found += [
            HostEnergy(
                host=host,
                domain=str(domain),
                idle_joules=resting_j,
                active_joules=more_j * share,
                method=f"{method} ±{error:.0%}" if error else str(method),
            )
            for host, share in shares_of(domain)
            if _is_known(window, idle, parts)
        ]
    return tuple(sorted(found, key=lambda one: (one.host, one.domain)))


def _domain(device: Device) -> Domain:
    return device.domain


def _adding(window: Window) -> Iterable[Device]:
    return (device for device in window.series.devices if device.adds)


def _is_known(window: Window, idle: Baseline, devices: Iterable[Device]) -> bool:
    return all(
        window.energy_uj(device.name) is not None and idle.idle_uj(device.name, 1) is not None for device in devices
    )


def _parts(window: Window, idle: Baseline, device: Device) -> tuple[float, float]:
    """Return the joules at rest and above it; both 0 where something is unknown."""
    used_uj, resting_uj = window.energy_uj(device.name), idle.idle_uj(device.name, window.duration_ns)
    if used_uj is None or resting_uj is None:
        return 0.0, 0.0
    resting_uj = min(resting_uj, used_uj)
    return resting_uj / 1e6, (used_uj - resting_uj) / 1e6
