"""Sensors in the kernel's hwmon: boards of ARM servers without other counters, and AMD's GPUs.

The root of sysfs and the clock are arguments.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from emlio.clock import Clock, SystemClock
from emlio.energy.sources.finding import Finding, State
from emlio.energy.sources.kernel_files import CounterFile, entries_of, text_of
from emlio.energy.values.device import Device, Domain, Method

__all__ = ["find_sensors"]

_FILE = re.compile(r"(power|energy)(\d+)_(average|input)")
_REMEDY = "only root may read this sensor: run as root, grant CAP_DAC_READ_SEARCH, or allow a group with a udev rule"
_SHOWN = "what it covers is not known, or contains others: shown, never added"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """The meaning of a sensor, by its chip and label.

    The first rule that matches applies. A sensor whose rule has `name` None is not recorded.
    """

    pattern: re.Pattern[str]
    name: str | None
    domain: Domain


_RULES = (
    _Rule(pattern=re.compile(r".*: cpu power socket (\d+)"), name="cpu", domain=Domain.CPU),
    _Rule(pattern=re.compile(r".*: grace power socket (\d+)"), name="grace", domain=Domain.BOARD),
    _Rule(pattern=re.compile(r".*: module power socket (\d+)"), name="module", domain=Domain.BOARD),
    _Rule(pattern=re.compile(r".*: sysio power socket (\d+)"), name=None, domain=Domain.BOARD),
    _Rule(pattern=re.compile(r"(?:smpro|xgene|altra)\w*: cpu power"), name="cpu", domain=Domain.CPU),
    _Rule(pattern=re.compile(r"(?:smpro|xgene|altra)\w*: (?:io|soc) power"), name=None, domain=Domain.BOARD),
    _Rule(pattern=re.compile(r"amd_energy: esocket(\d+)"), name="package", domain=Domain.CPU),
    _Rule(pattern=re.compile(r"amd_energy: .*"), name=None, domain=Domain.CPU),
    _Rule(pattern=re.compile(r"amdgpu: .*"), name="amdgpu", domain=Domain.GPU),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sensor:
    chip: str
    label: str
    path: Path
    is_energy: bool
    interval_ms: int | None

    @property
    def said(self) -> str:
        return f"{self.chip}: {self.label}"


def find_sensors(sysfs: Path, clock: Clock | None = None) -> tuple[Finding, ...]:
    """Return the sensors of energy and power, both known and unknown ones.

    Args:
        sysfs: such as /sys.
        clock: for integrating power.
    """
    folder = sysfs / "class/hwmon"
    sensors = list(_sensors(folder))
    if not sensors:
        return (Finding.absent("hwmon", f"no energy or power sensor in {folder}"),)
    found: list[Finding] = []
    used: set[str] = set()
    for sensor in sensors:
        finding = _finding(sensor, used, clock or SystemClock())
        used.add(finding.name)
        found.append(finding)
    return tuple(found)


def _sensors(folder: Path) -> Iterator[_Sensor]:
    for chip in sorted(entries_of(folder), key=_place):
        # ACPI's power meters have their files in the device's folder, not in hwmon's.
        for place in (chip, chip / "device"):
            best: dict[tuple[str, int], Path] = {}
            for path in sorted(
                entries_of(place)
            ):  # "average", a mean over an interval, sorts before "input" and is preferred
                match = _FILE.fullmatch(path.name)
                if match is not None:
                    best.setdefault((match[1], int(match[2])), path)
            for (kind, number), path in sorted(best.items()):
                label = text_of(place / f"{kind}{number}_label") or text_of(place / f"{kind}{number}_oem_info")
                interval = text_of(place / f"{kind}{number}_average_interval")
                yield _Sensor(
                    chip=text_of(chip / "name") or chip.name,
                    label=label or f"{kind}{number}",
                    path=path,
                    is_energy=kind == "energy",
                    interval_ms=int(interval) if interval.isdigit() and path.name.endswith("average") else None,
                )


def _finding(sensor: _Sensor, used: set[str], clock: Clock) -> Finding:
    said = sensor.said.lower()
    rule, match = next(
        ((rule, match) for rule in _RULES if (match := rule.pattern.fullmatch(said)) is not None), (None, None)
    )
    if rule is not None and rule.name is None:
        text = f"{sensor.path}: a part that is counted elsewhere or not at all: not recorded"
        return Finding(source="hwmon", name=sensor.said, state=State.CONTAINED, domain=rule.domain, detail=text)
    number = match[1] if match is not None and match.re.groups else None
    stem = rule.name if rule is not None and rule.name is not None else re.sub(r"\W+", "-", said)
    domain = rule.domain if rule is not None else Domain.BOARD
    notes = [sensor.said, f"its mean over {sensor.interval_ms} ms" if sensor.interval_ms else ""]
    device = Device(
        name=_free(stem if rule is None else f"{stem}-{number or 0}", stem, used),
        domain=domain,
        source="hwmon",
        method=Method.MEASURED if sensor.is_energy else Method.DERIVED,
        note="; ".join(text for text in (*notes, _SHOWN if domain is Domain.BOARD else "") if text),
        adds=domain is not Domain.BOARD,
    )
    return Finding.untried(device, partial(CounterFile, device, sensor.path, clock), remedy=_REMEDY)


def _free(wanted: str, stem: str, used: set[str]) -> str:
    """Return an unused name; two sockets' chips may carry the same label."""
    number = 1
    while wanted in used:
        wanted, number = f"{stem}-{number}", number + 1
    return wanted


def _place(folder: Path) -> tuple[int, str]:
    number = folder.name.removeprefix("hwmon")
    return (int(number) if number.isdigit() else 0, folder.name)
