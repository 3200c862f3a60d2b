"""Devices and readings for tests of what is made of them.

Covers: values with what a test does not care about filled in. Does not cover: machines and their counters
(emlio.testing.energy_machines).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from emlio.energy.device import Device
from emlio.energy.domain import Domain, Method
from emlio.energy.reading import Reading
from emlio.energy.series import Series

__all__ = ["SECOND_NS", "make_device", "make_reading", "make_series"]

SECOND_NS = 1_000_000_000
_DAY_NS = 1_700_000_000 * SECOND_NS


def make_device(name: str = "package-0", domain: Domain = Domain.CPU, **more: Any) -> Device:
    """A measured device of powercap unless something else is said."""
    usual = Device(name=name, domain=Domain.CPU, source="powercap", method=Method.MEASURED)
    return replace(usual, **{"domain": domain, **more})


def make_reading(seq: int, at_ns: int, *totals: int | None, **more: Any) -> Reading:
    """A reading with a spread of 20 µs, made at a time of day that goes on as the clock does."""
    usual = Reading(seq=seq, mono_ns=at_ns, real_ns=_DAY_NS + at_ns, spread_ns=20_000, totals=totals)
    return replace(usual, **more)


def make_series(
    *rows: Sequence[int | None], names: Sequence[str] = ("package-0",), every_ns: int = SECOND_NS
) -> Series:
    """Readings at regular times from 0; each row has the totals of all devices in µJ."""
    readings = tuple(make_reading(number, number * every_ns, *row) for number, row in enumerate(rows))
    return Series(devices=tuple(make_device(name) for name in names), readings=readings)
