"""A processor's power as a function of load, as `emlio-bench counters --calibrate` writes it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError
from emlio.settings import read_toml

__all__ = ["Calibration", "read_calibration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """P = idle + (max - idle) * busy ** exponent, of a whole machine.

    Attributes:
        processor: its name, as reported by the machine that was calibrated.
        cores: how many hardware threads it had.
        idle_watts: of all packages when idle.
        max_watts: of all packages with every core busy.
        exponent: 1 for a straight line.
        memory_watts: of all memory; None where no counter covered it.
        memory_bytes: the size of that memory.
    """

    processor: str
    cores: int
    idle_watts: float
    max_watts: float
    exponent: float
    memory_watts: float | None = None
    memory_bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.idle_watts < self.max_watts < float("inf"):
            raise ConfigError(
                f"idle watts must be at least 0 and below the maximum, got {self.idle_watts} and {self.max_watts}"
            )
        if not 0.1 <= self.exponent <= 10:
            raise ConfigError(f"the exponent must be from 0.1 to 10, got {self.exponent}")
        if self.cores < 1 or self.memory_bytes < 1:
            raise ConfigError(f"cores and memory must be above 0, got {self.cores} and {self.memory_bytes} bytes")
        if self.memory_watts is not None and not 0 <= self.memory_watts < float("inf"):
            raise ConfigError(f"memory_watts must be at least 0, got {self.memory_watts}")

    def text(self) -> str:
        """Return the content of the calibration file."""
        lines = [
            "# Made by `emlio-bench counters`: the power of this machine's processors, from their energy counters.",
            f"processor = {_quoted(self.processor)}",
            f"cores = {self.cores}",
            f"idle_watts = {self.idle_watts:.3f}",
            f"max_watts = {self.max_watts:.3f}",
            f"exponent = {self.exponent:.2f}",
            f"memory_bytes = {self.memory_bytes}",
        ]
        if self.memory_watts is not None:
            lines.append(f"memory_watts = {self.memory_watts:.3f}")
        return "\n".join(lines) + "\n"


def read_calibration(path: Path) -> Calibration:
    """Read a calibration."""
    table = dict(read_toml(path))
    try:
        memory_watts = table.pop("memory_watts", None)
        found = Calibration(
            processor=str(table.pop("processor")),
            cores=_whole(table.pop("cores")),
            idle_watts=float(table.pop("idle_watts")),
            max_watts=float(table.pop("max_watts")),
            exponent=float(table.pop("exponent")),
            memory_watts=None if memory_watts is None else float(memory_watts),
            memory_bytes=_whole(table.pop("memory_bytes")),
        )
    except KeyError as error:
        raise ConfigError(f"{path}: a calibration must have the key {error.args[0]}") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if table:
        raise ConfigError(f"{path}: unknown keys in a calibration: {', '.join(sorted(table))}")
    return found


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"must be a whole number, got {value!r}")
    return value


def _quoted(text: str) -> str:
    """Return a TOML string."""
    return '"' + "".join(c for c in text if c.isprintable() and c not in '"\\') + '"'
