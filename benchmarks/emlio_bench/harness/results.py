"""The results of a run: raw samples with their environment, immutable.

Covers: the values, their JSON, merging comparable runs. Does not cover: evaluating them
(emlio_bench.harness.report).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import ConfigError
from emlio_bench.harness.environment import Environment
from emlio_bench.harness.meter import Measurement

__all__ = ["SCHEMA", "Figure", "Results", "Sample", "merge", "neighbours", "read_results", "write_results"]

SCHEMA: Final = 1
"""The version of the format. It is raised when a field changes its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement and its position in the run.

    Attributes:
        scenario: name of the scenario.
        subject: name of the subject.
        round: number of the round. Samples of one scenario and round were taken one after the
            other, so they may be compared.
        place: position in the round; it changes from round to round.
        measured: the measurement.
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
    """The results of one run.

    Attributes:
        benchmark: name of the benchmark.
        environment: environment of the run.
        settings: settings of the run, as text; runs with different settings are not comparable.
        samples: samples of a delivery benchmark.
        figures: figures of any other benchmark.
        schema: version of this format.
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
    """Merge two runs of the same benchmark on the same machine.

    The rounds of the second run come after those of the first.

    Raises:
        ConfigError: the runs are not comparable; the message names the differences.
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
    """Write the results as indented JSON."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    except OSError as error:
        raise ConfigError(f"results must go where files can be written: {path}: {error.strerror or error}") from error


def read_results(path: Path) -> Results:
    """Read a file that `write_results` wrote."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Results)
    except OSError as error:
        raise ConfigError(f"results must be readable: {path}: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"results must be JSON of schema {SCHEMA}: {path}: {error}") from error
