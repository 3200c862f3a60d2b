"""Processors and memory through the kernel's powercap tree, or one that a hypervisor exports.

The tree's root is an argument.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from emlio.clock import SystemClock
from emlio.energy.sources.finding import Finding, State
from emlio.energy.sources.kernel_files import CounterFile, entries_of, number_of, text_of
from emlio.energy.values.device import Device, Domain, Method

__all__ = ["find_zones"]

_ZONE = re.compile(r"(intel-rapl[a-z-]*)((?::\d+)+)")
_CONTROL = re.compile(r"intel-rapl[a-z-]*")
_PACKAGE = re.compile(r"package-(\d+(?:-die-\d+)?)")
_CONSTRAINTS = 8
_HEADROOM = 2.0
"""A processor may exceed its long-term rating for a while, but not by this factor."""
_FLOOR_WATTS = 300.0
_UNKNOWN_WATTS = 2000.0
_REMEDY = (
    "only root may read energy_uj: run as root, grant CAP_DAC_READ_SEARCH, or allow a group with a udev rule "
    "(counters that all users can read leak what a processor computes)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Zone:
    folder: Path
    control: str
    numbers: tuple[int, ...]
    name: str

    @property
    def place(self) -> tuple[str, tuple[int, ...]]:
        return self.control, self.numbers


def find_zones(root: Path, *, exported: bool = False) -> tuple[Finding, ...]:
    """Return the zones of a tree; MSR zones come before their duplicates in MMIO.

    Args:
        root: such as /sys/class/powercap.
        exported: whether a hypervisor wrote it for this guest. Its zones then need no names.
    """
    source = "host-export" if exported else "powercap"
    if not root.is_dir():
        return (Finding.absent(source, f"{root} does not exist"),)
    zones = sorted(_zones(root, exported=exported), key=lambda zone: zone.place)
    if not zones:
        return (Finding.absent(source, _why_empty(root)),)
    names = {zone.place: zone.name for zone in zones}
    return tuple(_finding(zone, names, source) for zone in zones)


def _why_empty(root: Path) -> str:
    if any(_ZONE.fullmatch(entry.name) for entry in root.iterdir()):
        return f"the zones of {root} are broken links: in a container, bind-mount /sys/devices/virtual/powercap too"
    return f"{root} has no RAPL zones"


def _zones(root: Path, *, exported: bool) -> Iterator[_Zone]:
    """Yield each zone once, whether the tree is flat, as with links of a class, or nested."""
    seen: set[tuple[str, tuple[int, ...]]] = set()
    waiting = [root]
    while waiting:
        for folder in filter(Path.is_dir, entries_of(waiting.pop())):
            match = _ZONE.fullmatch(folder.name)
            if match is None:
                if _CONTROL.fullmatch(folder.name):
                    waiting.append(folder)
                continue
            numbers = tuple(int(number) for number in match[2].split(":")[1:])
            if (match[1], numbers) in seen:
                continue
            seen.add((match[1], numbers))
            waiting.append(folder)
            name = text_of(folder / "name")
            if not name and exported and len(numbers) == 1 and (folder / "energy_uj").exists():
                name = f"package-{numbers[0]}"
            if name:
                yield _Zone(folder=folder, control=match[1], numbers=numbers, name=name)


def _finding(zone: _Zone, names: dict[tuple[str, tuple[int, ...]], str], source: str) -> Finding:
    above = names.get((zone.control, zone.numbers[:-1]))
    package = _PACKAGE.fullmatch(zone.name)
    if package is not None:
        return _counted(zone, zone.name, Domain.CPU, source, "")
    if zone.name == "dram":
        of = _PACKAGE.fullmatch(above) if above is not None else None
        suffix = of[1] if of is not None else "-".join(str(number) for number in zone.numbers)
        return _counted(zone, f"dram-{suffix}", Domain.DRAM, source, "")
    if zone.name == "psys":
        name = "psys" if zone.numbers[0] == _first_psys(zone.control, names) else f"psys-{zone.numbers[0]}"
        return _counted(
            zone, name, Domain.BOARD, source, "the whole platform, the packages with it: shown, never added"
        )
    detail = f"a part of {above}" if above is not None else "what it covers is not known"
    return Finding(
        source=source,
        name=f"{zone.name} of {zone.folder.name}",
        state=State.CONTAINED,
        detail=f"{detail}: not recorded",
    )


def _first_psys(control: str, names: dict[tuple[str, tuple[int, ...]], str]) -> int:
    return min(numbers[0] for (of, numbers), name in names.items() if of == control and name == "psys")


def _counted(zone: _Zone, name: str, domain: Domain, source: str, note: str) -> Finding:
    most_uj = number_of(zone.folder / "max_energy_range_uj")
    rated, most = _watts(zone.folder)
    exported = source == "host-export"
    device = Device(
        name=name,
        domain=domain,
        source=source,
        method=Method.MEASURED,
        range_uj=most_uj + 1 if most_uj else None,
        # An exporter adds up several seconds and writes them at once, which looks like impossible
        # power.
        most_watts=None if exported else most,
        rated_watts=None if exported else rated,
        note="; ".join(text for text in (note, "this guest's share, as its host says" if exported else "") if text),
        adds=domain is not Domain.BOARD,
    )
    return Finding.untried(
        device, partial(CounterFile, device, zone.folder / "energy_uj", SystemClock()), remedy=_REMEDY
    )


def _watts(folder: Path) -> tuple[float | None, float]:
    """Return the long-term rated power, where the kernel knows it, and an upper limit."""
    rated: float | None = None
    highest_uw = 0
    for number in range(_CONSTRAINTS):
        name = text_of(folder / f"constraint_{number}_name")
        if not name:
            break
        built_uw = number_of(folder / f"constraint_{number}_max_power_uw") or 0
        highest_uw = max(highest_uw, built_uw, number_of(folder / f"constraint_{number}_power_limit_uw") or 0)
        if name == "long_term" and built_uw:
            rated = built_uw / 1e6
    return rated, max(_FLOOR_WATTS, _HEADROOM * highest_uw / 1e6) if highest_uw else _UNKNOWN_WATTS
