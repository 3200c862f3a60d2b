"""The results of a run: raw samples with their environment, immutable.

Covers: the values, their file, the differences of two runs, merging like runs. Does not cover:
evaluating them (emlio_bench.harness.report), comparing them (emlio_bench.harness.comparison).
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from emlio.errors import ConfigError
from emlio_bench.harness.environment import Environment
from emlio_bench.harness.meter import Measurement

__all__ = [
    "MEASURED",
    "SCHEMA",
    "TURNS",
    "Figure",
    "Results",
    "Sample",
    "Turn",
    "merge",
    "neighbours",
    "read_results",
    "unlike",
    "write_results",
]

SCHEMA: Final = 3
"""The version of the format. It is raised when a field changes its meaning, or is added without a default."""

MEASURED: Final = {"measured": True}
"""The metadata of fields that differ from run to run, even between like runs."""

_NAMED: Final = 5
"""The number of names in the description of a difference."""

TURNS: Final = {**MEASURED, "turns": True}
"""The metadata of fields that hold turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The position of a measurement in its run.

    Attributes:
        subject: name of the subject.
        round: number of the round. Measurements of one scenario and round were taken one after the
            other, so they may be compared.
        place: position in the round; it changes from round to round.
    """

    subject: str
    round: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Turn):
    """One measurement of a delivery.

    Attributes:
        scenario: name of the scenario.
        measured: the measurement.
    """

    scenario: str
    measured: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One quantity, measured several times.

    Attributes:
        name: name of the quantity.
        unit: unit of the values.
        values: all values, in the order of measurement.
        at_most: upper bound of the values, if any.
        at_least: lower bound of the values, if any.
        every: whether each value must keep the bounds; otherwise their median must.
        note: description of the measurement, for people.
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
    """The results of one run. A benchmark with more to keep adds fields in a class of its own.

    Attributes:
        benchmark: name of the benchmark.
        environment: environment of the run.
        settings: settings of the run, as text; runs with different settings are not comparable.
        begun: start, as an ISO date and time in UTC; empty if it was not kept.
        samples: samples of a benchmark that takes turns.
        figures: figures of any other benchmark.
        schema: version of this format.
    """

    benchmark: str
    environment: Environment
    settings: tuple[tuple[str, str], ...]
    begun: str = field(default="", metadata=MEASURED)
    samples: tuple[Sample, ...] = field(default=(), metadata=TURNS)
    figures: tuple[Figure, ...] = field(default=(), metadata=MEASURED)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ConfigError(f"results must have schema {SCHEMA}, got {self.schema}")


_Results = TypeVar("_Results", bound=Results)


def unlike(first: Results, second: Results, *, but: Collection[str] = ()) -> list[str]:
    """Return the differences that make two runs unlike, in words.

    Args:
        first: results of a run.
        second: results of another run.
        but: names of fields, of the environment's fields and of settings that may differ.
    """
    names = [one.name for one in fields(first) if not one.metadata]
    mine, others = (
        {
            **{name: getattr(run, name, None) for name in names if name not in ("environment", "settings")},
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
    """Return two values; of two sequences the names of what only one of them has."""
    if not all(isinstance(value, tuple) for value in (one, other)):
        return f"{one!r} and {other!r}"
    alone = [item for item in (*one, *other) if item not in one or item not in other]
    names = list(dict.fromkeys(str(getattr(item, "name", item)) for item in alone))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def merge(first: _Results, second: _Results) -> _Results:
    """Merge two runs of the same benchmark on the same machine.

    The rounds of the second run come after those of the first.

    Raises:
        ConfigError: the runs are not comparable; the message names the differences.
    """
    differences = unlike(first, second)
    shapes = [[(figure.name, figure.unit) for figure in run.figures] for run in (first, second)]
    if shapes[0] != shapes[1]:
        differences.append(f"figures {shapes[0]} and {shapes[1]}")
    if differences:
        raise ConfigError(f"only like runs may be merged, these differ in {'; '.join(differences)}")
    turns = {one.name: getattr(first, one.name) for one in fields(first) if "turns" in one.metadata}
    rounds = 1 + max((turn.round for of in turns.values() for turn in of), default=-1)
    later: dict[str, Any] = {
        name: (*of, *(replace(turn, round=turn.round + rounds) for turn in getattr(second, name)))
        for name, of in turns.items()
    }
    figures = tuple(
        replace(one, values=one.values + other.values) for one, other in zip(first.figures, second.figures, strict=True)
    )
    return replace(first, figures=figures, **later)


def neighbours(samples: Sequence[Sample], of: str, to: str) -> list[tuple[Measurement, Measurement]]:
    """Return the measurements of two subjects in the same rounds, as pairs.

    Args:
        samples: samples of one scenario.
        of: a subject.
        to: the subject that it is compared with.
    """
    other = {sample.round: sample.measured for sample in samples if sample.subject == to}
    return [
        (sample.measured, other[sample.round]) for sample in samples if sample.subject == of and sample.round in other
    ]


def write_results(results: Results, path: Path) -> None:
    """Write the results as indented JSON. A reader, or a kill, finds the file before or after."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n"
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(text)
        os.replace(unfinished, path)
    except FileExistsError as error:
        raise ConfigError(f"results must go where files can be written, {path.parent} is a file") from error
    except OSError as error:
        raise ConfigError(f"results must go where files can be written: {path}: {error.strerror or error}") from error


class _Head(msgspec.Struct, frozen=True):
    """The fields by which a file of results is recognised."""

    schema: int
    benchmark: str = ""


def read_results(path: Path, kinds: Mapping[str, type[Results]] | None = None) -> Results:
    """Read a file that `write_results` wrote.

    Args:
        path: the file.
        kinds: classes of benchmarks whose results have fields of their own, by benchmark.

    Raises:
        ConfigError: the file cannot be read, is no results, or is of another schema.
    """
    try:
        text = path.read_bytes()
        head = msgspec.json.decode(text, type=_Head)
        if head.schema != SCHEMA:
            raise ConfigError(f"{path}: results must have schema {SCHEMA}, got {head.schema}: measure again")
        return msgspec.json.decode(text, type=(kinds or {}).get(head.benchmark, Results))
    except OSError as error:
        raise ConfigError(f"results must be readable: {path}: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"results must be JSON of schema {SCHEMA}: {path}: {error}") from error
