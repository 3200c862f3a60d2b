"""The results of a benchmark: values with the machine and the settings they come from.

A run has values by quantity; a figure is a list of values with a bound. Results whose settings or
machines differ refuse to merge. Raw values are kept, so that summaries can be computed again.
"""

import gzip
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from emlio.errors import ConfigError
from emlio.units import format_duration
from emlio_bench.harness.contest import Contest, Entrant
from emlio_bench.harness.environment import Environment, read_environment
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.spread import Value
from emlio_bench.link.accuracy import LinkReport

__all__ = [
    "MIB",
    "QUICK",
    "RESULTS",
    "Figure",
    "Results",
    "Run",
    "by_name",
    "figure",
    "merge",
    "neighbours",
    "ratio_values",
    "read_results",
    "results_of",
    "rtt_text",
    "run_of",
    "unlike",
    "write_results",
]

SCHEMA: Final = 4
RESULTS: Final = "results.json"
QUICK: Final = ("quick", "True")
"""The setting of a run that shows that everything works and measures nothing."""

_MEASURED: Final = {"measured": True}
"""Marks the fields that may differ between runs that are alike."""
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one subject in one scenario.

    Attributes:
        scenario: name of the scenario, or of the contest.
        subject: name of the subject.
        setting: setting of the subject, if it has several.
        round: round, in which each subject runs once.
        place: position in the round.
        values: values by quantity.
        words: what is known and no number, such as the method of an energy.
        series: values over the run, such as losses.
        failure: why it failed; None if it did not.
    """

    scenario: str
    subject: str
    setting: str = ""
    round: int
    place: int
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    words: dict[str, str] = field(default_factory=dict[str, str])
    series: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    failure: str | None = None

    @property
    def who(self) -> tuple[str, str]:
        """Subject and setting."""
        return self.subject, self.setting

    @property
    def cut(self) -> bool:
        """True if it was stopped at a limit."""
        return any(value.beyond for value in self.values.values())

    def value(self, quantity: str) -> float:
        """Return a value that the run must have."""
        return self.values[quantity].value


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A quantity with all its values.

    Attributes:
        name: name, unique in the results.
        unit: unit.
        values: values.
        at_most: upper bound.
        at_least: lower bound.
        every: whether the bound is for every value; else it is for the median.
        note: note for readers.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    at_most: float | None = None
    at_least: float | None = None
    every: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError(f"figure {self.name!r} must have at least one value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Runs and figures of one benchmark on one machine.

    Attributes:
        benchmark: name of the benchmark.
        environment: machine and software.
        settings: settings, as text.
        contests: contests of a race.
        entrants: who entered it.
        begun: when it began.
        links: reports on the link, by contest.
        runs: runs.
        figures: figures.
        no_energy: why energy was not recorded.
        schema: version of the format.
    """

    benchmark: str
    environment: Environment
    settings: tuple[tuple[str, str], ...]
    contests: tuple[Contest, ...] = ()
    entrants: tuple[Entrant, ...] = ()
    begun: str = field(default="", metadata=_MEASURED)
    links: tuple[tuple[str, LinkReport], ...] = field(default=(), metadata=_MEASURED)
    runs: tuple[Run, ...] = field(default=(), metadata=_MEASURED)
    figures: tuple[Figure, ...] = field(default=(), metadata=_MEASURED)
    no_energy: str = field(default="", metadata=_MEASURED)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ConfigError(f"results must have schema {SCHEMA}, got {self.schema}")
        names = [contest.name for contest in self.contests]
        entrants = [(entrant.subject, entrant.setting) for entrant in self.entrants]
        if len(set(names)) != len(names) or len(set(entrants)) != len(entrants):
            raise ConfigError(f"results must have each contest and entrant once, got {names} and {entrants}")

    @property
    def succeeded(self) -> bool:
        """True if any run came to its end."""
        return any(run.failure is None for run in self.runs)


def run_of(scenario: str, subject: str, number: int, place: int, measured: Measurement) -> Run:
    """Return the run of a sample that a meter took."""
    found = {
        "bytes/s": measured.bytes_per_s,
        "sender, CPU s/GB": measured.sender_cpu_ns / measured.payload_bytes,
        "receiver, CPU s/GB": measured.receiver_cpu_ns / measured.payload_bytes,
        "length, s": measured.elapsed_ns / 1e9,
    }
    if measured.records:
        found["records/s"] = measured.records_per_s
    if measured.first_batch_ns is not None:
        found["first batch, ms"] = measured.first_batch_ns / 1e6
    return Run(
        scenario=scenario,
        subject=subject,
        round=number,
        place=place,
        values={name: Value(value=value) for name, value in found.items()},
        words={"protection": measured.protection} if measured.protection else {},
    )


def unlike(first: Results, second: Results, *, but: Collection[str] = ()) -> list[str]:
    """Return in what two results differ besides what was measured, with both values."""
    names = [one.name for one in fields(Results) if not one.metadata]
    mine, others = (
        {
            **{name: getattr(run, name) for name in names if name not in ("environment", "settings")},
            **{one.name: getattr(run.environment, one.name) for one in fields(Environment)},
            **{f"setting {name}": value for name, value in run.settings},
        }
        for run in (first, second)
    )
    return [
        f"{name} {_words(mine.get(name), others.get(name))}"
        for name in dict.fromkeys([*mine, *others])
        if mine.get(name) != others.get(name) and name.removeprefix("setting ") not in but
    ]


def _words(one: Any, other: Any) -> str:
    """Name what only one of two collections has; show other values."""
    if not all(isinstance(value, tuple) for value in (one, other)):
        return f"{one!r} and {other!r}"
    alone = [item for item in (*one, *other) if item not in one or item not in other]
    names = list(dict.fromkeys(str(getattr(item, "name", item)) for item in alone))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def merge(first: Results, second: Results) -> Results:
    """Return results with the values of both; the second's rounds follow the first's.

    Raises:
        ConfigError: they are not alike; the message names the differences.
    """
    differences = unlike(first, second)
    shapes = [[(figure.name, figure.unit) for figure in run.figures] for run in (first, second)]
    if shapes[0] != shapes[1]:
        differences.append(f"figures {shapes[0]} and {shapes[1]}")
    if differences:
        raise ConfigError(f"only like runs may be merged, these differ in {'; '.join(differences)}")
    rounds = 1 + max((run.round for run in first.runs), default=-1)
    later = tuple(replace(run, round=run.round + rounds) for run in second.runs)
    figures = tuple(
        replace(one, values=one.values + other.values) for one, other in zip(first.figures, second.figures, strict=True)
    )
    return replace(first, figures=figures, runs=(*first.runs, *later))


def neighbours(runs: Sequence[Run], of: str, to: str) -> list[tuple[Run, Run]]:
    """Return the runs of two subjects in the same round."""
    other = {run.round: run for run in runs if run.subject == to}
    return [(run, other[run.round]) for run in runs if run.subject == of and run.round in other]


def write_results(results: Results, path: Path) -> None:
    """Write results as JSON, as a whole or not at all; compressed if the name ends with .gz."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n"
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
        os.replace(unfinished, path)
    except FileExistsError as error:
        raise ConfigError(f"results must go where files can be written, {path.parent} is a file") from error
    except OSError as error:
        raise ConfigError(f"results must go where files can be written: {path}: {error.strerror or error}") from error


class _Head(msgspec.Struct, frozen=True):
    schema: int


def read_results(place: Path) -> Results:
    """Read results from a file, or from a folder's results.json.

    Raises:
        ConfigError: there are none, or of another schema.
    """
    path = place / RESULTS if place.is_dir() else place
    try:
        text = path.read_bytes()
        if path.suffix == ".gz":
            text = gzip.decompress(text)
        head = msgspec.json.decode(text, type=_Head)
        if head.schema != SCHEMA:
            raise ConfigError(f"{path}: results must have schema {SCHEMA}, got {head.schema}: measure again")
        return msgspec.json.decode(text, type=Results)
    except (OSError, EOFError) as error:
        raise ConfigError(f"results must be readable: {path}: {error}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"results must be JSON of schema {SCHEMA}: {path}: {error}") from error


MIB = 1 << 20


def figure(
    name: str,
    unit: str,
    values: Iterable[float],
    note: str = "",
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    every: bool = False,
) -> Figure:
    """Return a figure. See `Figure`."""
    return Figure(
        name=name, unit=unit, values=tuple(values), at_most=at_most, at_least=at_least, every=every, note=note
    )


def ratio_values(ours: Iterable[float], theirs: Iterable[float]) -> tuple[float, ...]:
    """Return the ratios of values that were measured one after the other; there must be as many."""
    return tuple(one / other for one, other in zip(ours, theirs, strict=True))


def by_name(results: Results) -> dict[str, Figure]:
    """Return the figures by name."""
    return {one.name: one for one in results.figures}


def rtt_text(rtt_ns: int) -> str:
    """Return a round trip for people; 0 ms for none."""
    return format_duration(rtt_ns) if rtt_ns else "0 ms"


def results_of(
    benchmark: str,
    settings: Mapping[str, object],
    figures: Iterable[Figure],
    runs: Sequence[Run] = (),
    *,
    iperf: str | None = None,
) -> Results:
    """Return the results of a run in this environment.

    Args:
        benchmark: name of the benchmark.
        settings: settings of the run. Booleans become true or false, several values are joined by
            commas.
        figures: figures of the run.
        runs: samples of the run.
        iperf: path of iperf3, if it was used.
    """
    told = tuple((name, _text(value)) for name, value in settings.items())
    return Results(
        benchmark=benchmark,
        environment=read_environment(iperf),
        settings=told,
        runs=tuple(runs),
        figures=tuple(figures),
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value)))
    return str(value)
