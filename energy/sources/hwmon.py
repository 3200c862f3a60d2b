"""Sensors in the kernel's hwmon: boards of ARM servers without other counters, and AMD's GPUs.

The root of sysfs and the clock are arguments.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from emlio.clock import Clock, SystemClock
from emlio.energy.sources.finding import Finding, State
from emlio.energy.sources.kernel_files import CounterFile, entries_of, number_of, text_of
from emlio.energy.values.device import Device, Domain, Method

__all__ = ["find_sensors"]

_FILE = re.compile(r"(power|energy)(\d+)_(average|input)")
_REMEDY = "only root may read this sensor: run as root, grant CAP_DAC_READ_SEARCH, or allow a group with a udev rule"
_SHOWN = "what it covers is not known, or contains others: shown, never added"


_RULES: tuple[tuple[str, str | None, Domain], ...] = (
    (r".*: cpu power socket (\d+)", "cpu", Domain.CPU),
    (r".*: grace power socket (\d+)", "grace", Domain.BOARD),
    (r".*: module power socket (\d+)", "module", Domain.BOARD),
    (r".*: sysio power socket (\d+)", None, Domain.BOARD),
    (r"(?:smpro|xgene|altra)\w*: cpu power", "cpu", Domain.CPU),
    (r"(?:smpro|xgene|altra)\w*: (?:io|soc) power", None, Domain.BOARD),
    (r"amd_energy: esocket(\d+)", "package", Domain.CPU),
    (r"amd_energy: .*", None, Domain.CPU),
    (r"amdgpu: .*", "amdgpu", Domain.GPU),
)
"""The meaning of a sensor by its chip and label: the first that matches. One without a name is not recorded."""


def find_sensors(sysfs: Path, clock: Clock | None = None) -> tuple[Finding, ...]:
    """Return the sensors of energy and power, both known and unknown ones.

    Args:
        sysfs: such as /sys.
        clock: for integrating power.
    """
    folder = sysfs / "class/hwmon"
    found: list[Finding] = []
    for said, path, note in _sensors(folder):
        found.append(_finding(said, path, note, {one.name for one in found}, clock or SystemClock()))
    return tuple(found) or (Finding.absent("hwmon", f"no energy or power sensor in {folder}"),)


def _sensors(folder: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield the chip and label of each sensor, its file, and a note on its values."""
    for chip in sorted(entries_of(folder), key=_place):
        # ACPI's power meters have their files in the device's folder, not in hwmon's.
        for place in (chip, chip / "device"):
            best: dict[tuple[str, int], Path] = {}
            # "average", a mean over an interval, sorts before "input" and is preferred.
            for path in sorted(entries_of(place)):
                match = _FILE.fullmatch(path.name)
                if match is not None:
                    best.setdefault((match[1], int(match[2])), path)
            for (kind, number), path in sorted(best.items()):
                sensor = f"{kind}{number}"
                label = text_of(place / f"{sensor}_label") or text_of(place / f"{sensor}_oem_info") or sensor
                interval_ms = number_of(place / f"{sensor}_average_interval")
                note = f"its mean over {interval_ms} ms" if interval_ms and path.name.endswith("average") else ""
                yield f"{text_of(chip / 'name') or chip.name}: {label}", path, note


def _finding(said: str, path: Path, note: str, used: set[str], clock: Clock) -> Finding:
    stem, number, domain = _meaning(said.lower())
    if stem is None:
        text = f"{path}: a part that is counted elsewhere or not at all: not recorded"
        return Finding(source="hwmon", name=said, state=State.CONTAINED, domain=domain, detail=text)
    adds = domain is not Domain.BOARD
    device = Device(
        name=_free(stem if number is None else f"{stem}-{number}", stem, used),
        domain=domain,
        source="hwmon",
        method=Method.MEASURED if path.name.startswith("energy") else Method.DERIVED,
        note="; ".join(filter(None, (said, note, "" if adds else _SHOWN))),
        adds=adds,
    )
    return Finding.untried(device, partial(CounterFile, device, path, clock), remedy=_REMEDY)


def _meaning(said: str) -> tuple[str | None, str | None, Domain]:
    """Return a device's name, its number and its domain; no number for an unknown sensor."""
    for pattern, name, domain in _RULES:
        match = re.fullmatch(pattern, said)
        if match is not None:
            return name, match[1] if match.re.groups else "0", domain
    return re.sub(r"\W+", "-", said), None, Domain.BOARD


def _free(wanted: str, stem: str, used: set[str]) -> str:
    """Return an unused name; two sockets' chips may carry the same label."""
    number = 1
    while wanted in used:
        wanted, number = f"{stem}-{number}", number + 1
    return wanted


def _place(folder: Path) -> tuple[int, str]:
    number = folder.name.removeprefix("hwmon")
    return (int(number) if number.isdigit() else 0, folder.name)
