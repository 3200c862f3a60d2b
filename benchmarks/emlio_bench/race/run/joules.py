"""The energy of the machine while a consumer read, and of each host.

EMLIO's own recorder runs beside the race, in a process that takes less than a hundredth of a core.

On one machine, each of two real hosts would use its idle power for as long as a run takes. What the machine used
above its idle power is divided by processor time: a part to the consumer's processes, a part to the
server's, and the rest, the link's process and other programs, to neither. A GPU belongs to the
training host.
"""

import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Protocol, Self

from emlio.energy.job.baseline import Baseline, measure_idle
from emlio.energy.job.shared_recorder import JobRecorder
from emlio.energy.job.stages import blocked
from emlio.energy.recording.edge import Edge
from emlio.energy.recording.store import Store
from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span, Stage
from emlio.energy.values.total import DeviceEnergy, Total, total_of
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["QUIET", "REST_S", "Energy", "EnergyMeter", "HostEnergy", "Joules", "by_host", "energy_of"]

QUIET: Final = 0.05
"""The share of busy processors up to which a machine is at rest."""

_REST_TRIES: Final = 3
REST_S: Final = 6.0
"""The least time of a measurement at rest is 5 s."""

HostName = Literal["compute", "storage"]
_WEAKEST: Final = (Method.ESTIMATED, Method.DERIVED, Method.MEASURED)


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


class EnergyMeter(Protocol):
    """The energy of both hosts: `Joules`, or of two machines."""

    def used(
        self,
        from_ns: int,
        to_ns: int,
        *,
        steps: Iterable[tuple[int, int]] = (),
        compute_cpu_ns: int | None = None,
        storage_cpu_ns: int | None = None,
    ) -> Energy | None:
        """Return the energy between two past times of CLOCK_MONOTONIC; None if it is unknown.

        Args:
            from_ns: start, after the start of the meter.
            to_ns: end, later than the start.
            steps: start and end of each step of the consumer.
            compute_cpu_ns: processor time of the consumer's processes; None if unknown.
            storage_cpu_ns: processor time of the server's processes; None if unknown.
        """
        ...


class Joules:
    """A recorder, for the duration of a `with` block. Used by one thread."""

    def __init__(self, folder: Path, *, cpu_watts: str = "", powercap_root: Path | None = None) -> None:
        """Start the recorder.

        Args:
            folder: folder of its file, new for each race.
            cpu_watts: idle and maximum power, such as "60:180", for processors without counters;
                empty for constants.
            powercap_root: counters that the host of this virtual machine exports; None for none.
        """
        self._file = folder / f"{socket.gethostname()}.sqlite"
        self._idle = Baseline()
        options = ("--cpu-watts", cpu_watts) if cpu_watts else ()
        if powercap_root is not None:
            options = (*options, "--powercap-root", str(powercap_root.absolute()))
        self._recorder = JobRecorder(folder, options=options)

    def rest(self, seconds: float = REST_S, tries: int = _REST_TRIES) -> float:
        """Measure the power of the machine at rest; return the share of its processors that was busy.

        Other programs may be at work, so the quietest of some measurements counts, or the first one
        that is quiet.

        Args:
            seconds: length of each measurement.
            tries: most measurements.
        """
        least = 1.0
        for _ in range(tries):
            begun_ns = self._recorder.read().reading.mono_ns
            time.sleep(seconds)
            edge = self._recorder.read()
            ended_ns = edge.reading.mono_ns
            window = Window(series=self._load(begun_ns, ended_ns, edge), from_ns=begun_ns, to_ns=ended_ns)
            busy = (window.cpu_busy_ns or 0) / (window.duration_ns * (os.cpu_count() or 1))
            if busy <= least:
                least, self._idle = busy, measure_idle(window)
            if busy <= QUIET:
                break
        return least

    def used(
        self,
        from_ns: int,
        to_ns: int,
        *,
        steps: Iterable[tuple[int, int]] = (),
        compute_cpu_ns: int | None = None,
        storage_cpu_ns: int | None = None,
        whole: HostName | None = None,
    ) -> Energy | None:
        """Return the energy between two past times; see `EnergyMeter`.

        Args:
            from_ns: start.
            to_ns: end.
            steps: start and end of each step of the consumer.
            compute_cpu_ns: processor time of the consumer's processes.
            storage_cpu_ns: processor time of the server's processes.
            whole: the host that this machine is; None if it is both, which share its energy by
                their processor time.
        """
        series = self._load(from_ns, to_ns, self._recorder.read())
        found = energy_of(series, from_ns, to_ns, steps)
        if found is None:
            return None
        window = Window(series=series, from_ns=from_ns, to_ns=to_ns)
        if whole is not None:
            return replace(found, hosts=_divided(window, self._idle, {whole: 1.0}, whole))
        if compute_cpu_ns is None or storage_cpu_ns is None:
            return found
        hosts = by_host(window, self._idle, compute_cpu_ns=compute_cpu_ns, storage_cpu_ns=storage_cpu_ns)
        return replace(found, hosts=hosts)

    def _load(self, from_ns: int, to_ns: int, edge: Edge) -> Series:
        """Return the recording of a stretch of time.

        Args:
            from_ns: its start.
            to_ns: its end.
            edge: a reading after its end. The recorder writes by another thread, so the file may
                not have it yet.
        """
        with Store(self._file) as store:
            series = store.load(from_ns=from_ns, to_ns=to_ns)
        if series.readings and series.readings[-1].mono_ns < min(to_ns, edge.reading.mono_ns):
            return Series(devices=series.devices, readings=(*series.readings, edge.reading))
        return series

    def close(self) -> None:
        """Stop the recorder. A second call does nothing."""
        self._recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def energy_of(series: Series, from_ns: int, to_ns: int, steps: Iterable[tuple[int, int]]) -> Energy | None:
    """Return the recorded energy of a stretch of time; None if it is unknown.

    Args:
        series: the recording.
        from_ns: start of the stretch.
        to_ns: end of the stretch, later than the start.
        steps: start and end of each step of the consumer.
    """
    if to_ns <= from_ns:
        return None
    window = Window(series=series, from_ns=from_ns, to_ns=to_ns)
    total = _sum((device, series.energy_uj(device.name, from_ns, to_ns)) for device in series.devices)
    if total.energy_uj is None:
        return None
    spans = [Span(stage=Stage.TRAIN, start_ns=start, end_ns=end, thread="consumer") for start, end in steps]
    shares = {share.stage: share.parts for share in blocked(window, spans, Baseline())}
    train, read = (_sum((part.device, part.energy_uj) for part in shares[stage]) for stage in (Stage.TRAIN, Stage.READ))
    told = Energy(joules=total.energy_uj / 1e6, method=_words(total))
    if train.energy_uj is None or read.energy_uj is None or train.energy_uj + read.energy_uj != total.energy_uj:
        return told  # the energy of some device is known for the whole but not for its parts
    return replace(told, train_joules=train.energy_uj / 1e6, read_joules=read.energy_uj / 1e6)


def _sum(used: Iterable[tuple[Device, int | None]]) -> Total:
    return total_of(
        (DeviceEnergy(device=device, energy_uj=energy_uj) for device, energy_uj in used), node=socket.gethostname()
    )


def _words(total: Total) -> str:
    parts = [str(method) for method in total.by_method]
    if total.method is Method.ESTIMATED and total.error is not None:
        parts[-1] += f" (off by up to {total.error:.0%})"
    lacking = f", without {', '.join(total.lacks)}" if total.lacks else ""
    return " and ".join(parts) + lacking


def by_host(window: Window, idle: Baseline, *, compute_cpu_ns: int, storage_cpu_ns: int) -> tuple[HostEnergy, ...]:
    """Divide the energy of a window; a device whose energy or idle power is unknown is left out.

    Args:
        window: the recording of the machine during a run.
        idle: power of the machine at rest.
        compute_cpu_ns: processor time of the consumer's processes.
        storage_cpu_ns: processor time of the server's processes.
    """
    busy_ns = max(window.cpu_busy_ns or 0, compute_cpu_ns + storage_cpu_ns, 1)
    shares: dict[HostName, float] = {"compute": compute_cpu_ns / busy_ns, "storage": storage_cpu_ns / busy_ns}
    return _divided(window, idle, shares, "compute")


def _divided(window: Window, idle: Baseline, shares: dict[HostName, float], gpu: HostName) -> tuple[HostEnergy, ...]:
    """Divide by the part of each host in the energy above rest; GPUs are of one host."""
    found: list[HostEnergy] = []
    adding = sorted((device for device in window.series.devices if device.adds), key=lambda one: one.domain)
    for domain, devices in groupby(adding, key=lambda one: one.domain):
        parts = list(devices)
        known = [energy for device in parts if (energy := _parts(window, idle, device)) is not None]
        if len(known) < len(parts):
            continue
        resting_j, more_j = (sum(of) for of in zip(*known, strict=True))
        method = min((device.method for device in parts), key=_WEAKEST.index)
        error = max((device.error or 0.0 for device in parts), default=0.0)
        parted: dict[HostName, float] = {gpu: 1.0} if domain is Domain.GPU else shares
        found += [
            HostEnergy(
                host=host,
                domain=str(domain),
                idle_joules=resting_j,
                active_joules=more_j * share,
                method=f"{method} ±{error:.0%}" if error else str(method),
            )
            for host, share in parted.items()
        ]
    return tuple(sorted(found, key=lambda one: (one.host, one.domain)))


def _parts(window: Window, idle: Baseline, device: Device) -> tuple[float, float] | None:
    """Return the joules at rest and above it; None where something is unknown."""
    used_uj, resting_uj = window.energy_uj(device.name), idle.idle_uj(device.name, window.duration_ns)
    if used_uj is None or resting_uj is None:
        return None
    resting_uj = min(resting_uj, used_uj)
    return resting_uj / 1e6, (used_uj - resting_uj) / 1e6
