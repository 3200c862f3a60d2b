"""The figures of both paces, and their ratios.

Covers: names, units, bounds. Pure. Does not cover: measuring (emlio_bench.pace.run), the plot
(emlio_bench.pace.plot).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from emlio.wire.control import ENERGY, PACES, RACE
from emlio_bench.experiment.figures import figure, ratio_values
from emlio_bench.harness.results import Figure

__all__ = ["FIGURES", "Seen", "pace_figures"]

FIGURES: Final = ("last epoch", "daemon CPU", "rank CPU", "daemon switches", "rank switches")
_UNITS: Final = ("s", "s", "s", "times", "times")
_BOUNDS: Final = {FIGURES[0]: 1.01, f"whole run: {FIGURES[1]}": 1.0}
"""The most that saving energy may take, as a share of racing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One sample: the last epoch and the whole run, each in the order of `FIGURES`."""

    last: tuple[float, ...]
    whole: tuple[float, ...]
    window_bytes: int
    waited_ns: int


def pace_figures(seen: Mapping[str, Sequence[Seen]], note: str) -> tuple[Figure, ...]:
    """Return the figures of all samples by pace."""
    last = {pace: [one.last for one in seen[pace]] for pace in PACES}
    whole = {pace: [one.whole for one in seen[pace]] for pace in PACES}
    figures = _compared(FIGURES[0], 0, last, note)
    for place, name in enumerate(FIGURES[1:], 1):
        figures += _compared(f"last epoch: {name}", place, last, note)
    for place, name in enumerate(FIGURES[1:], 1):
        figures += _compared(f"whole run: {name}", place, whole, note)
    for pace in PACES:
        waits = (one.waited_ns / 1e9 for one in seen[pace])
        figures.append(figure(f"last epoch: waited for batches, {pace}", "s", waits))
    for pace in PACES:
        figures.append(figure(f"most in the window, {pace}", "MB", (one.window_bytes / 1e6 for one in seen[pace])))
    return tuple(figures)


def _compared(name: str, place: int, parts: Mapping[str, Sequence[tuple[float, ...]]], note: str) -> list[Figure]:
    values = {pace: [one[place] for one in parts[pace]] for pace in PACES}
    ratios = ratio_values(values[ENERGY], values[RACE])
    return [
        *(figure(f"{name}, {pace}", _UNITS[place], values[pace], note) for pace in PACES),
        figure(f"{name}, energy : race", "", ratios, at_most=_BOUNDS.get(name)),
    ]
