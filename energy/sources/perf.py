"""Processors and memory through the kernel's performance counters (PMU `power`).

The perf program is not needed.

The root of sysfs and the system call are arguments.
"""

import ctypes
import os
import platform
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

from emlio.energy.sources.finding import Finding, State
from emlio.energy.sources.kernel_files import entries_of, text_of
from emlio.energy.values.device import Device, Domain, Method

__all__ = ["OpenEvent", "PerfEvent", "find_events", "open_event"]

OpenEvent = Callable[[int, int, int], int]
"""A function that opens a counter, given the PMU's type, the event's config and the CPU.

It returns a descriptor or raises OSError.
"""

_SYSCALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_CLOEXEC = 8
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""The first version of perf_event_attr. The kernel recognizes each version by its size."""

_COUNT = struct.Struct("=Q")
_PARTS = {
    "energy-pkg": ("package", Domain.CPU),
    "energy-ram": ("dram", Domain.DRAM),
    "energy-psys": ("psys", Domain.BOARD),
}
_UNKNOWN_WATTS = 2000.0
_REMEDY = (
    "reading the kernel's counters requires CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0, which allows all users"
)


def open_event(pmu: int, config: int, cpu: int) -> int:
    """Make the kernel count an event on a CPU, regardless of the process running there."""
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(f"perf_event_open is not supported on {platform.machine()}")
    attributes = ctypes.create_string_buffer(_ATTRIBUTES.pack(pmu, _ATTRIBUTES.size, config, 0, 0, 0, 0, 0, 0, 0))
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    fd = call(
        ctypes.c_long(number),
        attributes,
        ctypes.c_int(-1),
        ctypes.c_int(cpu),
        ctypes.c_int(-1),
        ctypes.c_ulong(_CLOEXEC),
    )
    if fd < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"event {config:#x} on CPU {cpu}")
    return int(fd)


class PerfEvent:
    """One event on one CPU as an `EnergyCounter`.

    The kernel extends the counter, so it does not wrap.
    """

    def __init__(self, device: Device, fd: int, joules: Fraction) -> None:
        """Take ownership of a descriptor.

        Args:
            device: the device that is counted.
            fd: from `open_event`; `close` closes it.
            joules: the energy of one count.
        """
        self.device = device
        self._fd = fd
        self._microjoules = joules * 1_000_000

    def read(self) -> int | None:
        """Return microjoules."""
        try:
            data = os.read(self._fd, _COUNT.size)
        except OSError:
            return None
        if len(data) != _COUNT.size:
            return None
        (count,) = _COUNT.unpack(data)
        return int(count * self._microjoules.numerator // self._microjoules.denominator)

    def close(self) -> None:
        """Close the descriptor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pmu:
    number: int
    cpus: tuple[int, ...]
    folder: Path


def find_events(sysfs: Path, open_event: OpenEvent = open_event) -> tuple[Finding, ...]:
    """Return the energy events of the PMU, one finding for each package or die.

    Args:
        sysfs: such as /sys.
        open_event: the system call.
    """
    folder = sysfs / "bus/event_source/devices/power"
    if not folder.is_dir():
        return (Finding.absent("perf", f"the kernel has no PMU for power: {folder} does not exist"),)
    pmu = _pmu(folder)
    if pmu is None:
        return (Finding.absent("perf", f"{folder} must have a type and CPUs, one is missing"),)
    events = sorted(path.name for path in entries_of(folder / "events") if re.fullmatch(r"energy-[a-z]+", path.name))
    if not events:
        return (Finding.absent("perf", "the PMU for power offers no event, as in many virtual machines"),)
    names = _names(sysfs, pmu.cpus)
    return tuple(finding for event in events for finding in _of_event(pmu, event, names, open_event))


def _pmu(folder: Path) -> _Pmu | None:
    number, cpus = text_of(folder / "type"), _cpus(text_of(folder / "cpumask"))
    return _Pmu(number=int(number), cpus=cpus, folder=folder) if number.isdigit() and cpus else None


def _of_event(pmu: _Pmu, event: str, names: dict[int, str], open_event: OpenEvent) -> list[Finding]:
    if event not in _PARTS:
        text = "a part of the package: not recorded"
        return [Finding(source="perf", name=event, state=State.CONTAINED, domain=Domain.CPU, detail=text)]
    config = _config(pmu.folder, event)
    joules = _scale(text_of(pmu.folder / f"events/{event}.scale"))
    unit = text_of(pmu.folder / f"events/{event}.unit")
    if config is None or joules is None or unit != "Joules":
        text = f"its event, scale or unit is invalid: {pmu.folder / 'events' / event}"
        return [Finding(source="perf", name=event, state=State.DEAD, detail=text)]
    kind, domain = _PARTS[event]
    findings: list[Finding] = []
    # A platform has one counter, which every package exposes.
    for cpu in pmu.cpus if domain is not Domain.BOARD else pmu.cpus[:1]:
        device = Device(
            name=kind if domain is Domain.BOARD else f"{kind}-{names[cpu]}",
            domain=domain,
            source="perf",
            method=Method.MEASURED,
            most_watts=_UNKNOWN_WATTS,
            note="the whole platform, the packages with it: shown, never added" if domain is Domain.BOARD else "",
            adds=domain is not Domain.BOARD,
        )
        opener = partial(_opened, device, open_event, pmu.number, config, cpu, joules)
        findings.append(Finding.untried(device, opener, remedy=_REMEDY))
    return findings


def _opened(device: Device, open_event: OpenEvent, pmu: int, config: int, cpu: int, joules: Fraction) -> PerfEvent:
    return PerfEvent(device, open_event(pmu, config, cpu), joules)


def _names(sysfs: Path, cpus: tuple[int, ...]) -> dict[int, str]:
    """Return powercap's name of each CPU's package or die.

    Dies are named where a package has several.
    """
    places: dict[int, tuple[str, str]] = {}
    for position, cpu in enumerate(cpus):
        topology = sysfs / f"devices/system/cpu/cpu{cpu}/topology"
        package, die = text_of(topology / "physical_package_id"), text_of(topology / "die_id")
        places[cpu] = (package if package.isdigit() else str(position), die if die.isdigit() else "0")
    packages = [package for package, _ in places.values()]
    return {
        cpu: package if packages.count(package) == 1 else f"{package}-die-{die}"
        for cpu, (package, die) in places.items()
    }


def _config(folder: Path, event: str) -> int | None:
    """Return the config of an event such as "event=0x02", shifted as the PMU's format requires."""
    match = re.fullmatch(r"event=(0x[0-9a-f]+|\d+)", text_of(folder / "events" / event))
    place = re.fullmatch(r"config:(\d+)(?:-\d+)?", text_of(folder / "format/event"))
    return int(match[1], 0) << int(place[1]) if match is not None and place is not None else None


def _scale(text: str) -> Fraction | None:
    try:
        scale = Fraction(text)
    except ValueError:
        return None
    return scale if scale > 0 else None


def _cpus(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list such as "0,28-30"."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        return ()
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))
