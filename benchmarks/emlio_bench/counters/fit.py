"""A processor's power as a function of load, fitted to its own counter."""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.errors import ConfigError

__all__ = ["LoadPoint", "fit"]

_EXPONENTS = [number / 100 for number in range(20, 301)]
_LEAST_SPREAD = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """A period of steady load: the share of processors that were busy (0 to 1), and their power."""

    busy: float
    watts: float


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
