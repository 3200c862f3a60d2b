"""The header of a recording: node, time and devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.energy.values.device import Device
from emlio.errors import ConfigError
from emlio.interrupts import is_interrupt

__all__ = ["Run", "boot_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A recording of one node, from the start of a recorder to its end.

    Attributes:
        node: the node's name.
        devices: in the order of each reading's totals.
        interval_ns: between scheduled readings.
        begun_mono_ns: the start, by the node's CLOCK_MONOTONIC, which restarts at boot.
        begun_real_ns: the start, by CLOCK_REALTIME.
        boot: the id of the boot that the monotonic clock belongs to; empty where the kernel has
            none.
        version: of the program.
        warnings: what the figures lack.
        facts: other JSON-compatible facts known at the start: the candidates and their states, the
            processor.
    """

    node: str
    devices: tuple[Device, ...]
    interval_ns: int
    begun_mono_ns: int
    begun_real_ns: int
    boot: str = ""
    version: str = ""
    warnings: Sequence[str] = ()
    facts: Any = None

    def __post_init__(self) -> None:
        if not self.node or not self.node.isprintable():
            raise ConfigError(f"a node's name must be printable and not empty, got {self.node!r}")
        if self.interval_ns <= 0:
            raise ConfigError(f"the interval of a recording must be above 0, got {self.interval_ns} ns")
        names = [device.name for device in self.devices]
        if len(set(names)) != len(names):
            raise ConfigError(f"devices must have names of their own on {self.node}, got {names}")


def boot_id(proc: Path) -> str:
    """Return the id of the current boot; empty where the kernel has none."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError as error:
        if is_interrupt(error):
            raise
        return ""
