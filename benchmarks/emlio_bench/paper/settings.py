"""The settings of `emlio-bench paper`.

Covers: its options with their texts and defaults. Does not cover: running.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError
from emlio.settings import option
from emlio.units import parse_duration_ns
from emlio_bench.harness.parsers import durations_ns, path, whole_number, words_of
from emlio_bench.paper.figures import FIGURES, RTTS_NS, figures_of
from emlio_bench.paper.scale import Scale
from emlio_bench.race.run.shared_settings import SharedSettings

__all__ = ["PaperSettings"]

_NUMBERS = tuple(str(figure.number) for figure in FIGURES)


def _figures(value: Any) -> tuple[int, ...]:
    numbers = tuple(map(int, words_of(value, _NUMBERS)))
    figures_of(numbers)
    return numbers


def _scale(value: Any) -> Scale:
    try:
        return Scale(str(value))
    except ValueError:
        raise ConfigError(f"must be one of {', '.join(Scale)}, got {value!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSettings(SharedSettings):
    """`emlio-bench paper`."""

    figure: tuple[int, ...] = option(
        (), f"figures of the paper, some of {','.join(_NUMBERS)} (default: all)", parse=_figures, metavar="N,..."
    )
    rtt: tuple[int, ...] = option(
        RTTS_NS,
        "round trips of the link (default 0.1ms,1ms,10ms,30ms, the paper's)",
        parse=durations_ns,
        metavar="TIME,...",
    )
    scale: Scale = option(
        Scale.FIT,
        "how many records: tiny shows that all works, fit ends within --within, full is the paper's number (default fit)",
        parse=_scale,
        metavar="SCALE",
    )
    within: int = option(
        5_400_000_000_000,
        "time for all figures with --scale fit, environments and data not counted (default 90m)",
        parse=parse_duration_ns,
        metavar="TIME",
    )
    rounds: int = option(1, "rounds, in each of which everybody runs once (default 1)", parse=whole_number, metavar="N")
    out: Path = option(
        Path("emlio-paper"),
        "where results and report go; a run that was interrupted goes on there (default emlio-paper)",
        parse=path,
        metavar="FOLDER",
    )

    def told(self) -> tuple[tuple[str, str], ...]:
        """Return the settings that must agree when a run is continued, as text."""
        return (
            ("scale", str(self.scale)),
            ("mount", str(self.mount or "sshfs")),
            *([("cpu_watts", self.cpu_watts)] if self.cpu_watts else []),
        )
