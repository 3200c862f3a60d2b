"""Small files of the kernel's file systems, and counters and sensors that are such files."""

import os
from pathlib import Path

from emlio.clock import Clock
from emlio.energy.sources.trapezoid import Trapezoid
from emlio.energy.values.device import Device, Method

__all__ = ["CounterFile", "entries_of", "number_of", "text_of"]

_DIGITS = 32


class CounterFile:
    """A file with one number as an `EnergyCounter`. It stays open."""

    def __init__(self, device: Device, path: Path, clock: Clock) -> None:
        """Open the file.

        Args:
            device: its description; a derived one is integrated from power.
            path: holds microjoules or microwatts.
            clock: for integrating power.

        Raises:
            OSError: it cannot be opened.
        """
        self.device = device
        self._clock = clock
        self._sum = Trapezoid() if device.method is Method.DERIVED else None
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> int | None:
        """Return microjoules, integrated where the file holds microwatts."""
        try:
            text = os.pread(self._fd, _DIGITS, 0).strip()
        except OSError:
            text = b""
        raw = int(text) if text.isdigit() else None  # it is empty for a moment while an exporter writes it
        return raw if self._sum is None else self._sum.add(raw, self._clock.monotonic_ns())

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def entries_of(folder: Path) -> list[Path]:
    """Return the entries of a folder; none if it is missing or unreadable."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def text_of(path: Path) -> str:
    """Return the content of a file, without surrounding whitespace; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def number_of(path: Path) -> int | None:
    """Return the non-negative number in a file; None if it holds none."""
    said = text_of(path)
    return int(said) if said.isdigit() else None
