"""Sizes, durations and numbers of things as people write them: "64MiB", "30ms", "1 record".

Does not cover: energy units.
"""

import re
from numbers import Real

from emlio.errors import ConfigError

__all__ = [
    "DURATION_UNITS",
    "SIZE_UNITS",
    "counted",
    "format_duration",
    "format_size",
    "parse_duration_ns",
    "parse_size",
]

_SIZES = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "m": 1000**2,
    "mb": 1000**2,
    "g": 1000**3,
    "gb": 1000**3,
    "t": 1000**4,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_DURATIONS = {
    "": 1_000_000_000,
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}
SIZE_UNITS = "B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
DURATION_UNITS = "ns, us, ms, s, min or h"
"""The units of sizes and durations, for errors."""

# Few enough digits that any such number can be computed with.
_QUANTITY = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([a-zA-Zµ]*)\s*")


def _parse(text: object, units: dict[str, int], kind: str, named: str, example: str) -> int:
    match = _QUANTITY.fullmatch(str(text)) if isinstance(text, str | Real) else None
    factor = units.get(match[2].lower()) if match else None
    if match is not None and factor is None:
        raise ConfigError(f"must be a {kind} in {named}, such as {example!r}, got {text!r}")
    if match is None or factor is None:
        raise ConfigError(f"must be a {kind} of 0 or more, such as {example!r}, got {text!r}")
    whole = float(match[1]) * factor if "." in match[1] else int(match[1]) * factor
    return round(whole)


def parse_size(text: str | int) -> int:
    """Return the bytes of "64MiB", "1.5GB", "4096" or 4096."""
    return _parse(text, _SIZES, "size", SIZE_UNITS, "64MiB")


def parse_duration_ns(text: str | float) -> int:
    """Return the nanoseconds of "30ms", "60s", "2min"; a number without a unit is in seconds."""
    return _parse(text, _DURATIONS, "duration", DURATION_UNITS, "30ms")


def format_size(size_bytes: float) -> str:
    """Format a size for people: 1.5 GB, 640 B. Units are decimal, as for disks and links."""
    value = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.5 else f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def format_duration(duration_ns: float) -> str:
    """Format a duration for people: 1.2 s, 30 ms, 450 µs, 3 min 20 s."""
    seconds = float(f"{duration_ns / 1e9:.3g}")  # rounded first: 999.6 ms is 1 s
    if seconds >= 60:
        whole = int(duration_ns / 1e9 + (0 if duration_ns >= 60e9 else 0.5))
        return f"{whole // 60} min {whole % 60} s"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError("unreachable")


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun in the singular or plural: 1 record, 2,000 records.

    Args:
        count: the number.
        one: the noun in the singular.
        many: the plural, if it is not the singular with an s.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
