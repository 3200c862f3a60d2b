"""A processor's power as a function of load, fitted to its own counter.

Covers: the fit, its file. Does not cover: making the load and reading the counter
(emlio.energy.verification.calibrating), the use of the result (emlio.energy.sources.model).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError
from emlio.settings import read_toml

__all__ = ["Calibration", "LoadPoint", "fit", "read_calibration"]

_EXPONENTS = [number / 100 for number in range(20, 301)]
_LEAST_SPREAD = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """A period of steady load: the share of processors that were busy (0 to 1), and their power."""

    busy: float
    watts: float


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
            "# Made by `emlio energy calibrate`: the power of this machine's processors, from their energy counters.",
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


def fit(points: Sequence[LoadPoint]) -> tuple[float, float, float]:
    """Return idle watts, maximum watts and exponent of the best fit.

    For each exponent the best straight line through busy ** exponent is computed directly; the best
    exponent is searched. With only two distinct loads any exponent fits, so 1 is used.
    """
    spread = max((point.busy for point in points), default=0.0) - min((point.busy for point in points), default=0.0)
    if spread < _LEAST_SPREAD:
        raise ConfigError(f"the loads must differ by at least {_LEAST_SPREAD} of the machine, got {spread:.2f}")
    exponents = _EXPONENTS if len({point.busy for point in points}) > 2 else [1.0]
    _, idle, span, exponent = min(_line(points, exponent) for exponent in exponents)
    if span <= 0:
        raise ConfigError(f"more load must draw more power, got {span:.2f} W between rest and full load")
    return max(idle, 0.0), idle + span, exponent


def _line(points: Sequence[LoadPoint], exponent: float) -> tuple[float, float, float, float]:
    """Fit by least squares.

    Return the remaining squares, watts at idle, additional watts at full load, and the exponent.
    """
    loads = [point.busy**exponent for point in points]
    mean_load = sum(loads) / len(points)
    mean_watts = sum(point.watts for point in points) / len(points)
    squares = sum((load - mean_load) ** 2 for load in loads)
    pairs = zip(loads, points, strict=True)
    span = sum((load - mean_load) * (point.watts - mean_watts) for load, point in pairs) / squares
    idle = mean_watts - span * mean_load
    left = sum((idle + span * load - point.watts) ** 2 for load, point in zip(loads, points, strict=True))
    return left, idle, span, exponent


def read_calibration(path: Path) -> Calibration:
    """Read a file that `emlio energy calibrate` wrote."""
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
