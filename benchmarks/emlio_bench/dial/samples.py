"""Samples for the models of reads and of writes: made by random settings of a handle, kept as JSON lines, trained from."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

import msgspec
import numpy as np

from emlio.aio import AioHandle
from emlio.aio.decider import EPSILON, TAU, Memory
from emlio.aio.interval import NAMES, SETTINGS, Interval, Setting, rows_of
from emlio.aio.tuner import Tune
from emlio.errors import ConfigError, FileError
from emlio.learned.model import Model
from emlio.progress import Progress
from emlio_bench.dial.patterns import fill, random_pattern, run_pattern
from emlio_bench.harness.lines import append_lines, check_lines, whole_lines
from emlio_bench.harness.results import Figure, figure
from emlio_bench.tuning.train import check_model_place, train

__all__ = ["Line", "collect", "read_lines", "table_of", "train_models"]

_RUN_S: Final = 8.0
_RUNS: Final = 12
"""The length of a pattern, shorter if there would be fewer patterns."""

_ANYWHERE: Final = 0.3
_STAYS: Final = 0.3
"""The shares of looks after which any setting follows, and none; after the others one that is a step or two away."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """An interval of a run, and its environment."""

    run: str
    group: str
    interval: Interval


@dataclass(slots=True)
class _Walk:
    """A decider that walks through settings at random, and keeps what it sees."""

    random: Random
    seen: list[Interval] = field(default_factory=list[Interval])

    def __call__(self, memory: Memory, now: Interval) -> Memory:
        self.seen.append(now)
        return replace(memory.seen(now), setting=self._next(memory.setting))

    def _next(self, setting: Setting) -> Setting:
        kind = self.random.random()
        if kind < _STAYS:
            return setting
        near = [
            one
            for one in SETTINGS
            if kind < _STAYS + _ANYWHERE
            or abs(np.log2(one.block_bytes / setting.block_bytes)) + abs(np.log2(one.depth / setting.depth)) <= 2
        ]
        return self.random.choice(near)


def collect(folder: Path, target: Path, *, size_bytes: int, seconds: float, every_ns: int) -> int:
    """Run random patterns with random settings, and append what is seen to a file; return how many intervals.

    Args:
        folder: on the disk that is measured.
        target: the file of JSON lines.
        size_bytes: of the file that is read and written, which is deleted afterwards.
        seconds: for how long, without making the file.
        every_ns: the length of an interval.
    """
    check_lines(target, Line)
    random, count = Random(), 0
    encoder = msgspec.json.Encoder()
    file = folder / "emlio-bench-dial.data"
    try:
        fill(file, size_bytes)
        runs = max(round(seconds / _RUN_S), _RUNS)
        with Progress("patterns", runs) as bar:
            for number in range(runs):
                pattern = random_pattern(random)
                pattern = replace(pattern, write=bool(number % 2))  # as many of both
                first, walk, run = random.choice(SETTINGS), _Walk(random), uuid4().hex
                end_s = time.monotonic() + seconds / runs
                with AioHandle(first.block_bytes, first.depth, tune=Tune(decide=walk, every_ns=every_ns)) as handle:
                    run_pattern(pattern, file, size_bytes, handle, end_s)
                seen = [Line(run=run, group=pattern.group, interval=interval) for interval in walk.seen]
                append_lines(target, encoder.encode_lines(seen))
                count += len(walk.seen)
                bar.add(1)
    except OSError as error:
        told = error if isinstance(error, FileError) else f"{error.filename or file}: {error.strerror}"
        raise ConfigError(f"the folder of --data must allow files to be written and read: {told}") from error
    finally:
        file.unlink(missing_ok=True)
    return count


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file. A last one that is not complete is left out.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    for number, line in enumerate(whole_lines(path), 1):
        try:
            yield msgspec.json.decode(line, type=Line)
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: must be a sample: {error}") from error


def table_of(lines: Sequence[Line], *, write: bool) -> tuple[Any, Any, list[str]]:
    """Return rows, the rate after each over the rate before, and environments: two intervals in a row are a sample."""
    rows: list[Any] = []
    gains: list[float] = []
    groups: list[str] = []
    for _, run in groupby(lines, key=lambda line: line.run):
        those = list(run)
        rates: list[float] = []
        for place, (line, after) in enumerate(pairwise(those)):
            now = line.interval
            rates.append(now.rate)
            if now.write is not write or min(now.rate, after.interval.rate) <= 0:
                continue
            before = those[place - 1].interval if place else None
            rows.append(rows_of(now, before, rates, [after.interval.setting])[0])
            gains.append(after.interval.rate / now.rate)
            groups.append(line.group)
    return np.array(rows).reshape(-1, len(NAMES)), np.array(gains), groups


def train_models(source: Path, folder: Path) -> list[Figure]:
    """Train both models from a file of samples, and write read.npz and write.npz into a folder; return their quality.

    Raises:
        ConfigError: there are too few samples, or a model cannot be written. If one cannot be trained, none is written.
    """
    lines = list(read_lines(source))
    models: dict[Path, Model] = {}
    found: list[Figure] = []
    for write, name in ((False, "read"), (True, "write")):
        check_model_place(folder / f"{name}.npz")
        rows, gains, groups = table_of(lines, write=write)
        if not groups:
            raise ConfigError(f"{source} must hold samples of {name}s, it holds none")
        trained = train(rows, gains, groups, NAMES, sorted(set(groups)), EPSILON, TAU)
        models[folder / f"{name}.npz"] = trained.model
        score = trained.scores[0]
        found += [
            figure(f"{name}: samples", "", [len(rows)]),
            figure(f"{name}: share that brings {EPSILON:.0%}", "", [score.gained]),
            figure(f"{name}: area under the curve, environments left out", "", [score.auc]),
            figure(f"{name}: chosen with a probability above {TAU}", "", [score.chosen]),
        ]
        if score.chosen:
            found.append(figure(f"{name}: precision of those", "", [score.precision]))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"a folder must be writable: {folder}: {error.strerror}") from error
    for place, model in models.items():
        model.save(place)
    return found
