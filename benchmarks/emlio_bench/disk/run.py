"""`emlio-bench disk`: emlio.aio beside fio, in turns; with `--sweep`, the best settings of a disk for the daemon."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from emlio.errors import ConfigError
from emlio.progress import Progress
from emlio.reading.direct.io_settings import IoSettings, parse_depth, parse_piece
from emlio.settings import option
from emlio.units import format_size
from emlio_bench.disk.work import OURS, PATTERNS, Work, block_text, fio_engines, fio_memory, measure
from emlio_bench.harness.command import Command, CommonSettings
from emlio_bench.harness.data import data_root, make_folder
from emlio_bench.harness.options import byte_size, count, flag, folder, names
from emlio_bench.harness.plot import bar_panels
from emlio_bench.harness.report import Part, Table, result_parts
from emlio_bench.harness.results import Results, Run, neighbours, results_of
from emlio_bench.harness.rounds import rotated
from emlio_bench.harness.spread import Spread, Value, spread, text

__all__ = ["COMMAND", "DiskSettings", "best_settings", "disk_parts"]

_BLOCKS: Final = ("128KiB", "1MiB")
_DEPTH: Final = 32
_SWEPT_BLOCKS: Final = ("128KiB", "256KiB", "512KiB", "1MiB", "2MiB", "4MiB")
_SWEPT_DEPTHS: Final = (8, 16, 32, 64, 128)
_SLABS: Final = "emlio, into slabs"
_BUSY: Final = ", busy Python thread"
_QUICK_BYTES: Final = 8 << 20
_ALMOST: Final = 0.97
"""The share of the best rate with which fewer bytes under way are better."""
_SPEED: Final = "bytes/s"
_CPU: Final = "CPU s/GB"


def _block_sizes(value: Any) -> tuple[int, ...]:
    return _different(value, [parse_piece(part) for part in str(value).split(",")])


def _depths(value: Any) -> tuple[int, ...]:
    words = [part.strip() for part in str(value).split(",")]
    return _different(value, [parse_depth(int(word) if word.isdecimal() else word) for word in words])


def _different(value: Any, numbers: Sequence[int]) -> tuple[int, ...]:
    if len(set(numbers)) != len(numbers):
        raise ConfigError(f"must be different, got {value!r}")
    return tuple(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSettings(CommonSettings):
    """`emlio-bench disk`. The folder of `--data` says which disk is measured."""

    patterns: tuple[str, ...] = names(PATTERNS, "what is done")
    blocks: tuple[int, ...] = option(
        (),
        f"sizes of blocks (default {','.join(_BLOCKS)}; with --sweep {','.join(_SWEPT_BLOCKS)})",
        parse=_block_sizes,
        metavar="SIZE,...",
    )
    depths: tuple[int, ...] = option(
        (),
        f"blocks at the disk at once (default {_DEPTH}; with --sweep {','.join(map(str, _SWEPT_DEPTHS))})",
        parse=_depths,
        metavar="N,...",
    )
    size: int = byte_size("2GB", "bytes of the file, all of which each sample reads or writes")
    repeats: int = count(7, "rounds; one sample of each subject in each")
    busy: bool = flag("measure ours beside a busy Python thread, too")
    sweep: Path | None = folder(
        "measure ours alone, random reads or with --patterns read, and write the best block size and depth here, for "
        "emlio-daemon --io-settings",
        "FILE",
    )


def run_disk(settings: DiskSettings) -> Results:
    """Measure all subjects in all scenarios, in turns."""
    size_bytes = _QUICK_BYTES if settings.quick else settings.size
    subjects = (OURS,) if settings.sweep else (*fio_engines(), *_ours(settings))
    runs: list[Run] = []
    told: dict[str, object] = {"size_bytes": size_bytes}
    with data_root(settings.data) as root:
        make_folder(root)
        file = root / "emlio-bench-disk.data"
        works = _works(settings, file, size_bytes)
        _check(root, size_bytes, works, settings)
        told["memory of fio"] = fio_memory(max(works, key=lambda work: work.depth * work.block_bytes))
        try:
            measure(OURS, replace(works[0], pattern="write"))
            with Progress("samples", len(works) * len(subjects) * settings.repeats) as bar:
                for run in _samples(works, subjects, settings.repeats):
                    runs.append(run)
                    bar.add(1)
        finally:
            file.unlink(missing_ok=True)
    if settings.sweep is not None:
        best = best_settings(runs, works)
        told["best"] = f"{best.queue_depth} blocks of {block_text(best.piece_bytes)} at once"
        try:
            settings.sweep.write_text(best.text(), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"the settings cannot be written to {settings.sweep}: {error.strerror}") from error
    return results_of("disk", told, (), runs)


def _check(root: Path, size_bytes: int, works: Sequence[Work], settings: DiskSettings) -> None:
    """Refuse what would fail after minutes.

    Raises:
        ConfigError: the file would be too small or too large, or there can be no sweep.
    """
    largest, free_bytes = max(work.block_bytes for work in works), shutil.disk_usage(root).free
    if not largest <= size_bytes <= free_bytes:
        raise ConfigError(
            f"--size must be at least the largest block, {block_text(largest)}, and at most what is free in {root}, "
            f"{format_size(free_bytes)}; got {format_size(size_bytes)}"
        )
    sweep = settings.sweep
    if sweep is None:
        return
    if sweep.is_dir() or not os.access(sweep if sweep.exists() else sweep.absolute().parent, os.W_OK):
        raise ConfigError(f"--sweep must name a file that can be written, got {sweep}")
    if settings.busy or len({work.pattern for work in works}) > 1 or works[0].writes:
        raise ConfigError("--sweep is for reading: --patterns must be random-read or read, and --busy not given")


def _works(settings: DiskSettings, file: Path, size_bytes: int) -> list[Work]:
    sweeps = settings.sweep is not None
    patterns = PATTERNS[:1] if sweeps and settings.patterns == PATTERNS else settings.patterns
    blocks = settings.blocks or _block_sizes(",".join(_SWEPT_BLOCKS if sweeps else _BLOCKS))
    depths = settings.depths or (_SWEPT_DEPTHS if sweeps else (_DEPTH,))
    return [
        Work(file=str(file), size_bytes=size_bytes, pattern=pattern, block_bytes=block, depth=depth)
        for pattern, block, depth in product(patterns, blocks, depths)
    ]


def _ours(settings: DiskSettings) -> tuple[str, ...]:
    return tuple(name + busy for busy in ("", _BUSY)[: 1 + settings.busy] for name in (OURS, _SLABS))


def _can(subject: str, work: Work) -> bool:
    return not (work.writes and subject.startswith(_SLABS))


def _samples(works: Sequence[Work], subjects: Sequence[str], rounds: int) -> Iterator[Run]:
    for number, work in product(range(rounds), works):
        for place, subject in enumerate(rotated([name for name in subjects if _can(name, work)], number)):
            way = replace(work, busy=subject.endswith(_BUSY), slabs=subject.startswith(_SLABS))
            sample = measure(subject, way)
            found = {
                _SPEED: sample.size_bytes * 1e9 / sample.elapsed_ns,
                _CPU: sample.cpu_ns / sample.size_bytes,
                "length, s": sample.elapsed_ns / 1e9,
            }
            values = {name: Value(value=value) for name, value in found.items()}
            yield Run(scenario=work.name, subject=subject, round=number, place=place, values=values)


def best_settings(runs: Sequence[Run], works: Sequence[Work]) -> IoSettings:
    """Return the settings with the fewest bytes at the disk among those that are almost the fastest."""
    speeds = [spread([run.value(_SPEED) for run in runs if run.scenario == work.name]).median for work in works]
    almost = [work for work, speed in zip(works, speeds, strict=True) if speed >= _ALMOST * max(speeds)]
    best = min(almost, key=lambda work: (work.block_bytes * work.depth, work.depth))
    return IoSettings(queue_depth=best.depth, piece_bytes=best.block_bytes)


def disk_parts(results: Results) -> tuple[Part, ...]:
    """Return the report. The environment comes first."""
    environment, *_ = result_parts(results)
    scenarios = list(dict.fromkeys(run.scenario for run in results.runs))
    tables = [_table(name, [run for run in results.runs if run.scenario == name]) for name in scenarios]
    reading = (
        "Median (least..most). Ratios are of neighbours in the same round, to the faster engine of fio; GB are 10^9 bytes; "
        "CPU is of the process,\nwithout the busy thread's."
    )
    return (environment, Part(tables=(_joined(tables),)), Part(text=reading))


def _table(scenario: str, runs: Sequence[Run]) -> list[tuple[str, ...]]:
    engines = sorted({run.subject for run in runs if run.subject.startswith("fio-")})
    fastest = max(
        engines,
        key=lambda name: spread([run.value(_SPEED) for run in runs if run.subject == name]).median,
        default=None,
    )
    rows: list[tuple[str, ...]] = []
    for subject in dict.fromkeys(run.subject for run in runs):
        own = [run for run in runs if run.subject == subject]

        def ratio(quantity: str, subject: str = subject) -> Spread | None:
            if fastest is None or subject in engines:
                return None
            pairs = [(run.value(quantity), other.value(quantity)) for run, other in neighbours(runs, subject, fastest)]
            found = [one / other for one, other in pairs if other]
            return spread(found) if found else None

        rows.append(
            (
                scenario,
                subject,
                text(spread([run.value(_SPEED) for run in own]).scaled(1e-9)),
                text(spread([run.value(_CPU) for run in own])),
                text(ratio(_SPEED)),
                text(ratio(_CPU)),
            )
        )
    return rows


def _joined(tables: Sequence[list[tuple[str, ...]]]) -> Table:
    return Table(
        header=("", "", "GB/s", "CPU s/GB", "rate : fio", "CPU : fio"),
        rows=tuple(row for table in tables for row in table),
        names=2,
    )


def _draw(results: Results) -> Any:
    panels = [
        (
            scenario,
            "GB/s",
            [
                (name, name, spread([run.value(_SPEED) for run in runs if run.subject == name]).scaled(1e-9))
                for name in dict.fromkeys(run.subject for run in runs)
            ],
        )
        for scenario in dict.fromkeys(run.scenario for run in results.runs)
        for runs in [[run for run in results.runs if run.scenario == scenario]]
    ]
    return bar_panels(results, panels)


COMMAND: Final = Command(
    name="disk",
    settings=DiskSettings,
    run=lambda settings, _: run_disk(settings),
    text="files read and written past the page cache, beside fio; with --sweep, a disk's best settings for the daemon",
    parts=disk_parts,
    draw=_draw,
)
