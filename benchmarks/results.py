"""What came out of a run: raw samples with the world they come from, immutable.

Covers: the values, their JSON, joining runs that are alike. Does not cover: making sense of them (emlio.benchmarks.report).
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import msgspec

from emlio.benchmarks.environment import Environment
from emlio.benchmarks.meter import Measurement
from emlio.errors import ConfigError

__all__ = ["SCHEMA", "Figure", "Results", "Sample", "merge", "read_results", "write_results"]

SCHEMA: Final = 1
"""Raised when a field changes its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement and its place in the run.

    Attributes:
        scenario: name of what was sent.
        subject: name of who sent it.
        round: samples of one scenario and round were taken one after the other and may be compared.
        place: position in the round; it changes from round to round.
        measured: the figures.
    """

    scenario: str
    subject: str
    round: int
    place: int
    measured: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One quantity, measured several times.

    Attributes:
        name: what it is.
        unit: of the values.
        values: every one, in the order they came.
        at_most: the bound the values must keep, where there is one.
        at_least: likewise from below.
        every: whether each value must keep the bounds; otherwise their median must.
        note: how it was measured, for people.
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
    """A run.

    Attributes:
        benchmark: its name.
        environment: where it ran.
        settings: what it was told, as text; runs that were told other things are not alike.
        samples: of a benchmark of deliveries.
        figures: of the others.
        schema: of this value.
    """

    benchmark: str
    environment: Environment
    settings: tuple[tuple[str, str], ...]
    samples: tuple[Sample, ...] = ()
    figures: tuple[Figure, ...] = ()
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ConfigError(f"results must have schema {SCHEMA}, got {self.schema}")


def merge(first: Results, second: Results) -> Results:
    """Two runs of the same benchmark on the same machine as one; the second's rounds come after the first's.

    Raises:
        ConfigError: they are not alike; names what differs.
    """
    differences = [
        f"{field.name} {getattr(first.environment, field.name)!r} and {getattr(second.environment, field.name)!r}"
        for field in fields(Environment)
        if getattr(first.environment, field.name) != getattr(second.environment, field.name)
    ]
    if first.benchmark != second.benchmark:
        differences.append(f"benchmark {first.benchmark!r} and {second.benchmark!r}")
    if first.settings != second.settings:
        differences.append(f"settings {dict(first.settings)} and {dict(second.settings)}")
    shapes = [[(figure.name, figure.unit) for figure in run.figures] for run in (first, second)]
    if shapes[0] != shapes[1]:
        differences.append(f"figures {shapes[0]} and {shapes[1]}")
    if differences:
        raise ConfigError(f"only like runs may be merged, these differ in {'; '.join(differences)}")
    rounds = 1 + max((sample.round for sample in first.samples), default=-1)
    return replace(
        first,
        samples=first.samples + tuple(replace(sample, round=sample.round + rounds) for sample in second.samples),
        figures=tuple(
            replace(one, values=one.values + other.values)
            for one, other in zip(first.figures, second.figures, strict=True)
        ),
    )


def write_results(results: Results, path: Path) -> None:
    """Write JSON for people and programs."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    except OSError as error:
        raise ConfigError(f"results must go where files can be written: {path}: {error.strerror or error}") from error


def read_results(path: Path) -> Results:
    """What `write_results` wrote."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Results)
    except OSError as error:
        raise ConfigError(f"results must be readable: {path}: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"results must be JSON of schema {SCHEMA}: {path}: {error}") from error
