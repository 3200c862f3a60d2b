"""Devices and readings for tests of their analysis."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.reading import Reading
from emlio.energy.values.series import Series

__all__ = ["SECOND_NS", "make_device", "make_reading", "make_series"]

SECOND_NS = 1_000_000_000
_DAY_NS = 1_700_000_000 * SECOND_NS


def make_device(name: str = "package-0", domain: Domain = Domain.CPU, **more: Any) -> Device:
    """Return a device measured by powercap, with changed fields."""
    usual = Device(name=name, domain=Domain.CPU, source="powercap", method=Method.MEASURED)
    return replace(usual, **{"domain": domain, **more})


def make_reading(seq: int, at_ns: int, *totals: int | None, **more: Any) -> Reading:
    """Return a reading with a spread of 20 µs, whose time of day advances with the clock."""
    usual = Reading(seq=seq, mono_ns=at_ns, real_ns=_DAY_NS + at_ns, spread_ns=20_000, totals=totals)
    return replace(usual, **more)


def make_series(
    *rows: Sequence[int | None], names: Sequence[str] = ("package-0",), every_ns: int = SECOND_NS
) -> Series:
    """Return readings at regular times from 0; each row has the totals of all devices in µJ."""
    readings = tuple(make_reading(number, number * every_ns, *row) for number, row in enumerate(rows))
    return Series(devices=tuple(make_device(name) for name in names), readings=readings)
