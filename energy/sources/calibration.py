"""A processor's power as a function of load, as `emlio-bench counters --calibrate` writes it."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import msgspec

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
    memory_bytes: int
    memory_watts: float | None = None

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
            f"{name} = {round(value, 3) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)}"
            for name, value in asdict(self).items()
            if value is not None
        ]
        return "\n".join(["# The power of this machine's processors, from their energy counters.", *lines, ""])


def read_calibration(path: Path) -> Calibration:
    """Read a calibration."""
    table = read_toml(path)
    unknown = sorted(set(table) - {field.name for field in fields(Calibration)})
    if unknown:
        raise ConfigError(f"{path}: unknown keys in a calibration: {', '.join(unknown)}")
    try:
        return msgspec.convert(dict(table), Calibration)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is no calibration: {error}") from error
