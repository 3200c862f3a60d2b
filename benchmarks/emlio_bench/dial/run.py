"""`emlio-bench dial`: the tables of the paper DIAL on one disk: fixed settings, a grid, DIAL's algorithm, and ours.

Each pattern of DIAL's tables is run with every setting of the grid for a while; the best of these is the optimum, and then
runs in turns with the contenders, each as long. The two that decide begin with a small setting. The loader reads the records
of DLIO's kernels from a daemon on the same disk. Samples for the models are collected and models trained by the same command.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from emlio.aio import AioHandle
from emlio.aio.decider import Decide, Memory, decide, dial
from emlio.aio.interval import SETTINGS, Interval, Setting, rows_of
from emlio.aio.tuner import Tune, load_models, shipped_models
from emlio.errors import ConfigError, TransportError
from emlio.learned.model import Model
from emlio.progress import Progress
from emlio.units import format_size
from emlio_bench.dial.patterns import KERNELS, PATTERNS, Pattern, fill, run_pattern
from emlio_bench.dial.report import CPU, GRID, LOADER, OPTIMUM, OVERHEADS, SPEED, dial_figures, dial_parts, draw_dial
from emlio_bench.dial.samples import collect, train_models
from emlio_bench.dlio.workloads import WORKLOADS
from emlio_bench.harness.command import Command, CommonSettings
from emlio_bench.harness.data import data_root, make_data, make_folder
from emlio_bench.harness.options import byte_size, count, duration, folder, names
from emlio_bench.harness.results import Figure, Results, Run, results_of
from emlio_bench.harness.rounds import rotated
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.sides import running_daemon
from emlio_bench.harness.spread import Value
from emlio_bench.processes.child import start_worker
from emlio_bench.tuning.contenders import AUTO, CONTENDERS
from emlio_bench.tuning.rank import Begun, Got, Order

__all__ = ["COMMAND", "DialSettings", "run_dial"]

_MIB: Final = 1 << 20
_SMALL: Final = Setting(block_bytes=64 << 10, depth=2)
_FIXED: Final = {
    "default": Setting(block_bytes=_MIB, depth=32),
    "Lustre's": Setting(block_bytes=_MIB, depth=8),
    "small": _SMALL,
}
_DECIDERS: Final[dict[str, Callable[[Model, Memory, Interval], Memory]]] = {"DIAL": dial, "ours": decide}
_LOADERS: Final = ("the paper's", AUTO, "learned")
_QUICK_BYTES: Final = 64 * _MIB
_ASKED: Final = 200
_ANSWER_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DialSettings(CommonSettings):
    """`emlio-bench dial`. The folder of `--data` says which disk is measured."""

    only: tuple[str, ...] = names(("aio", "loader", "overheads"), "the tables")
    patterns: tuple[str, ...] = names(tuple(PATTERNS), "the patterns")
    size: int = byte_size("1GiB", "bytes of the file that is read and written")
    hold: int = duration("1s", "time for each setting of the grid")
    length: int = duration("20s", "time for each contender")
    repeats: int = count(3, "rounds; one walk through the grid and one run of each contender in each")
    models: Path | None = folder("folder of read.npz and write.npz, to use and to write (default: EMLIO's own, to use)")
    collect: Path | None = folder(
        "measure nothing: append samples of random patterns and settings to this file", "FILE"
    )
    within: int = duration("30m", "time for --collect")
    every: int = duration("500ms", "time from one decision to the next, also with --collect")
    train: Path | None = folder("measure nothing: train models from this file into the folder of --models", "FILE")

    def __post_init__(self) -> None:
        super(DialSettings, self).__post_init__()  # a class with slots is not the one that super() knows
        if self.train is not None and self.models is None:
            raise ConfigError("--train needs --models, the folder for the models")
        if self.within < 1:
            raise ConfigError("--within must be above 0")
        if self.size < 64 * _MIB:
            raise ConfigError(f"--size must be at least 64 MiB, got {format_size(self.size)}")


def run_dial(settings: DialSettings) -> Results:
    """Measure the tables; or collect samples and train models."""
    size_bytes = _QUICK_BYTES if settings.quick else settings.size
    every_ns = 50_000_000 if settings.quick else settings.every
    told: dict[str, object] = {"size_bytes": size_bytes, "from one decision to the next": f"{every_ns / 1e9:g} s"}
    figures: list[Figure] = []
    if settings.collect is not None:
        with _disk(settings.data, size_bytes) as root:
            seconds = 2.0 if settings.quick else settings.within / 1e9
            told["intervals"] = collect(
                root, settings.collect, size_bytes=size_bytes, seconds=seconds, every_ns=every_ns
            )
    if settings.train is not None and settings.models is not None:
        figures = train_models(settings.train, settings.models)
    if settings.collect is not None or settings.train is not None:
        return results_of("dial", told, figures)
    models = shipped_models() if settings.models is None else load_models(settings.models)
    told["models"] = ", ".join(f"{'writes' if write else 'reads'} {one.digest[:12]}" for write, one in models.items())
    told["the setting in which both deciders begin"] = _words(_SMALL)
    runs: list[Run] = []
    with _disk(settings.data, size_bytes) as root:
        if "aio" in settings.only:
            runs += _aio(settings, root, size_bytes, every_ns, models)
        if "loader" in settings.only:
            runs += _loaders(settings, root, size_bytes)
        if "overheads" in settings.only:
            runs += [_overhead(write, model) for write, model in models.items()]
    return results_of("dial", told, dial_figures(runs), runs)


@contextmanager
def _disk(chosen: Path | None, size_bytes: int) -> Generator[Path]:
    """Provide the folder, with room for what is measured."""
    with data_root(chosen) as root:
        make_folder(root)
        free_bytes = shutil.disk_usage(root).free
        if free_bytes < 2 * size_bytes:
            raise ConfigError(
                f"{root} must have room for {format_size(2 * size_bytes)}, has {format_size(free_bytes)}; choose a folder "
                "with --data, or a smaller --size"
            )
        yield root


def _words(setting: Setting) -> str:
    return f"{setting.block_bytes >> 10} KiB x {setting.depth}"


# ---- requests by emlio.aio ----------------------------------------------------------------------------------------------


def _aio(settings: DialSettings, root: Path, size_bytes: int, every_ns: int, models: dict[bool, Model]) -> list[Run]:
    quick = settings.quick
    hold_s, length_s = (0.05, 0.1) if quick else (settings.hold / 1e9, settings.length / 1e9)
    grid, rounds = (SETTINGS[::18], 1) if quick else (SETTINGS, settings.repeats)
    deciders: dict[str, Tune] = {}
    for name, rule in _DECIDERS.items():
        deciders[name] = Tune(decide=_asking(rule, models), every_ns=every_ns)
    file, runs = root / "emlio-bench-dial.data", list[Run]()
    try:
        fill(file, size_bytes)
        steps = len(settings.patterns) * rounds * (len(grid) + len(_FIXED) + len(deciders) + 1)
        with Progress("runs", steps) as bar:
            for name in settings.patterns:
                pattern = PATTERNS[name]
                measure = partial(_measure, pattern, file, size_bytes)
                for number in range(rounds):
                    for place, setting in enumerate(rotated(grid, 5 * number)):
                        runs.append(measure(GRID, setting, number, place, hold_s))
                        bar.add(1)
                best = _best([run for run in runs if run.scenario == name], grid)
                subjects = {OPTIMUM: best, **_FIXED, **dict.fromkeys(deciders, _SMALL)}
                for number in range(rounds):
                    for place, who in enumerate(rotated(tuple(subjects), number)):
                        runs.append(measure(who, subjects[who], number, place, length_s, deciders.get(who)))
                        bar.add(1)
    finally:
        file.unlink(missing_ok=True)
    return runs


def _asking(rule: Callable[[Model, Memory, Interval], Memory], models: dict[bool, Model]) -> Decide:
    return lambda memory, now: rule(models[now.write], memory, now)


def _best(runs: Sequence[Run], grid: Sequence[Setting]) -> Setting:
    rates = {
        setting: statistics.median(run.value(SPEED) for run in runs if run.setting == _words(setting))
        for setting in grid
    }
    return max(rates, key=lambda setting: rates[setting])


def _measure(
    pattern: Pattern,
    file: Path,
    size_bytes: int,
    subject: str,
    setting: Setting,
    number: int,
    place: int,
    seconds: float,
    tune: Tune | None = None,
) -> Run:
    with AioHandle(setting.block_bytes, setting.depth, tune=tune or "off") as handle:
        cpu_ns = time.process_time_ns()
        done, elapsed_ns = run_pattern(pattern, file, size_bytes, handle, time.monotonic() + seconds)
        cpu_ns = time.process_time_ns() - cpu_ns
        last = handle.setting(write=pattern.write)
    return Run(
        scenario=pattern.name,
        subject=subject,
        setting=_words(setting) if subject == GRID else "",
        round=number,
        place=place,
        values={SPEED: Value(value=done * 1e9 / elapsed_ns), CPU: Value(value=cpu_ns / done)},
        words={"setting": _words(last)},
    )


# ---- records by the loader ----------------------------------------------------------------------------------------------


def _loaders(settings: DialSettings, root: Path, size_bytes: int) -> list[Run]:
    """Read the records of DLIO's kernels as fast as they come, past the page cache of the daemon's host."""
    runs: list[Run] = []
    contenders = [name for name in _LOADERS if name in CONTENDERS]
    seconds, warm_s = (0.5, 0.3) if settings.quick else (settings.length / 1e9, 2.0)
    kernels = KERNELS[1:] if settings.quick else KERNELS
    for kernel in kernels:
        about = WORKLOADS[kernel.lower()]
        records = size_bytes // about.record_bytes
        spec = DataSpec(kind="opaque", record_bytes=about.record_bytes, records=records, shards=8)
        directory = make_data(spec, root, progress=False)
        with running_daemon(directory, ("--io", "direct")) as daemon:
            for number in range(1 if settings.quick else settings.repeats):
                for place, who in enumerate(rotated(contenders, number)):
                    order = Order(
                        address=daemon.address,
                        daemon_pid=daemon.pid,
                        batch_records=about.sizes["fit"].batch,
                        record_bytes=about.record_bytes,
                        contender=who,
                        warm_s=warm_s,
                        seconds=seconds,
                    )
                    run = partial(Run, scenario=f"{LOADER}{kernel}", subject=who, round=number, place=place)
                    try:
                        with start_worker("tune-rank", order) as rank:
                            rank.hear(Begun, _ANSWER_S)
                            got = rank.hear(Got, _ANSWER_S + seconds)
                            rank.rest(_ANSWER_S)
                    except TransportError as error:
                        runs.append(run(failure=str(error)))
                        continue
                    last = got.samples[-1]
                    runs.append(run(values={SPEED: Value(value=last.size_bytes / last.at_s)}))
        if settings.data is None:
            shutil.rmtree(directory)  # one kernel's data at a time
    return runs


# ---- decisions ----------------------------------------------------------------------------------------------------------


def _overhead(write: bool, model: Model) -> Run:
    """Measure the parts of a decision of DIAL's algorithm, many times; values are medians."""
    times: dict[str, list[int]] = {name: [] for name in OVERHEADS}
    memory = Memory(setting=_SMALL)
    for number in range(_ASKED):
        begun = time.perf_counter_ns()
        now = Interval(
            write=write,
            setting=_SMALL,
            at_ns=number,
            busy_ns=500_000_000,
            size_bytes=(100 + number % 7) * _MIB,
            requests=100,
            calls=100,
            call_ns=500_000_000,
            cpu_ns=10_000_000,
        )
        rows = rows_of(now, memory.last, memory.rates)
        seen = time.perf_counter_ns()
        model.chances(rows)
        asked = time.perf_counter_ns()
        dial(model, memory, now)
        ended = time.perf_counter_ns()
        memory = memory.seen(now)
        for name, took in zip(OVERHEADS, (seen - begun, asked - seen, ended - asked), strict=True):
            times[name].append(took)
    values = {name: Value(value=statistics.median(took) / 1e6) for name, took in times.items()}
    return Run(scenario="a decision", subject="write" if write else "read", round=0, place=0, values=values)


COMMAND: Final = Command(
    name="dial",
    settings=DialSettings,
    run=lambda settings, _: run_dial(settings),
    text="the tables of the paper DIAL: settings of reads and writes decided by learned models, beside the best of a grid",
    parts=dial_parts,
    draw=draw_dial,
)
