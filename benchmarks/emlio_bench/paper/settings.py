"""The settings of `emlio-bench paper`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError
from emlio.settings import option
from emlio.units import format_duration
from emlio_bench.harness.options import chosen, count, duration, durations, not_empty, out, words_of
from emlio_bench.paper.figures import FIGURES, RTTS_NS, figures_of
from emlio_bench.paper.scale import Scale
from emlio_bench.race.run.settings import SharedSettings
from emlio_bench.race.storage.remote import ssh_command

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
    rtt: tuple[int, ...] = durations(
        "",
        "round trips of the link (default 0.1ms,1ms,10ms,30ms, the paper's); figure 11 has 10ms only, "
        "the comparison on one host in figure 5 0.1ms only",
        above_zero=True,
    )
    model: str = chosen(
        ("paper", "real"),
        "steps of the training: paper for pauses as long as the paper's, real for ResNet-50 and VGG-19 on the GPU, "
        "figures 5 and 9 only",
        "MODEL",
    )
    scale: Scale = option(
        Scale.FIT,
        "how many records: tiny shows that all works, fit ends within --within, full is the paper's number (default fit)",
        parse=_scale,
        metavar="SCALE",
    )
    within: int = duration("90m", "time for all figures with --scale fit, environments and data not counted")
    rounds: int = count(1, "rounds, in each of which every system runs once; figures 5 and 11 have more")
    out: Path = out("emlio-paper")

    storage: str = option(
        "",
        "run the storage side on this host over ssh, with the network that is there (default: on this machine, over a made link)",
        parse=not_empty,
        metavar="HOST",
    )
    storage_python: str = option(
        "python3", "Python on the storage host that has emlio-bench (default python3)", parse=not_empty, metavar="PATH"
    )
    storage_address: str = option(
        "",
        "address of the storage host for data (default: the one that ssh reaches)",
        parse=not_empty,
        metavar="ADDRESS",
    )
    ssh: str = option("ssh", 'ssh with options, such as "ssh -F FILE" (default ssh)', parse=str, metavar="COMMAND")

    def __post_init__(self) -> None:
        SharedSettings.__post_init__(self)
        self._check_round_trips()
        if self.storage and self.rtt:
            raise ConfigError("--rtt must be left out with --storage, whose round trip is measured")
        if self.storage and self.kind is not None:
            raise ConfigError(f"--kind must be left out with --storage, whose network is there, got {self.kind}")
        alone = {
            "--storage-address": bool(self.storage_address),
            "--storage-python": self.storage_python != "python3",
            "--ssh": self.ssh != "ssh",
        }
        needless = [name for name, given in alone.items() if given]
        if needless and not self.storage:
            raise ConfigError(f"{needless[0]} must come with --storage HOST")
        if self.storage:
            ssh_command(self.ssh, self.storage, self.storage_python)

    def _check_round_trips(self) -> None:
        """Refuse round trips at which none of the chosen figures is measured."""
        tasks = [task for figure in figures_of(self.figure, real=self.real) for task in figure.tasks]
        known = sorted({rtt_ns for task in tasks for rtt_ns in task.rtts_ns})
        if self.rtt and all(task.rtts_ns for task in tasks) and not set(self.rtt) & set(known):
            raise ConfigError(
                f"--rtt must be left out or be {', '.join(map(format_duration, known))} with --figure "
                f"{','.join(map(str, self.figure))}, got {', '.join(map(format_duration, self.rtt))}"
            )

    @property
    def real(self) -> bool:
        """True if real models are trained on a GPU."""
        return self.model == "real"

    @property
    def round_trips(self) -> tuple[int, ...]:
        """The round trips of a made link."""
        return self.rtt or RTTS_NS

    def told(self) -> tuple[tuple[str, str], ...]:
        """Return the settings that must agree when a run is continued, as text."""
        return (
            ("scale", str(self.scale)),
            *([("model", self.model)] if self.real else []),
            *([("storage", self.storage)] if self.storage else []),
            *([("storage_address", self.storage_address)] if self.storage_address else []),
            *self.told_of_host(),
        )
