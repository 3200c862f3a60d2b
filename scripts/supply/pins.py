"""The pins of a lock, and of an environment.

Covers: which versions of which packages a lock names, whatever the Python; which an environment holds.
Does not cover: hashes, which pip checks; making locks (scripts/lock).
"""

import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Pin", "in_rounds", "installed_in", "named_by"]

# "numpy==2.4.6 ; python_full_version < '3.12' \", not the indented hashes below it.
_LINE = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==(?P<version>[^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """One version of one package."""

    name: str
    version: str

    def __str__(self) -> str:
        """As a requirement."""
        return f"{self.name}=={self.version}"


def named_by(lock: str) -> list[Pin]:
    """All pins in a lock's text, those for other Pythons and machines too."""
    return sorted({_pin(found["name"], found["version"]) for found in _LINE.finditer(lock)})


def installed_in(environment: Path) -> list[Pin]:
    """What lies in a virtual environment's site-packages."""
    places = [str(path) for path in sorted(environment.glob("lib/python3.*/site-packages"))]
    if not places:
        raise FileNotFoundError(f"an environment must have lib/python3.*/site-packages, {environment} has none")
    return sorted({_pin(found.name, found.version) for found in importlib.metadata.distributions(path=places)})


def in_rounds(pins: Iterable[Pin]) -> Iterator[list[Pin]]:
    """The pins such that no round has two versions of one package, which no list of requirements may."""
    left = list(pins)
    while left:
        first: dict[str, Pin] = {}
        for pin in left:
            first.setdefault(pin.name, pin)
        yield list(first.values())
        left = [pin for pin in left if first[pin.name] != pin]


def _pin(name: str, version: str) -> Pin:
    # What follows "+" says who built it; advisories speak of what was built.
    return Pin(re.sub(r"[-_.]+", "-", name).lower(), version.partition("+")[0])
