"""`emlio-bench dlio`: DLIO's no-I/O loader, its own loaders on a disk and on a remote folder, and EMLIO's, in turns."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from emlio.errors import ConfigError, TransportError
from emlio.progress import Progress
from emlio.settings import option
from emlio.units import format_size
from emlio_bench.dlio.data import ROWS, made_data, placeholders_of
from emlio_bench.dlio.job import ENVIRONMENT, TENSORFLOW, Output, run_job
from emlio_bench.dlio.report import dlio_figures, dlio_parts, draw_dlio, failed_figure, scenario_name, values_of
from emlio_bench.dlio.search import greatest, is_decided, is_fed, part_of, search_figure, search_ratio
from emlio_bench.dlio.stalls import stalled, utilisation_without_reading_ahead
from emlio_bench.dlio.workloads import ACCELERATORS, INDEXED, SCALES, WORKLOADS, Task
from emlio_bench.harness.command import Command, CommonSettings, World
from emlio_bench.harness.data import data_root
from emlio_bench.harness.options import chosen, count, durations, flag, folder, names
from emlio_bench.harness.results import Figure, Results, Run, figure, results_of, rtt_text
from emlio_bench.harness.rounds import rotated
from emlio_bench.harness.sides import RunningDaemon, running_daemon
from emlio_bench.link.choice import open_link
from emlio_bench.link.contract import Link, LinkSpec
from emlio_bench.race.consumers.mounted import mounted
from emlio_bench.race.needs.environments import usable_cache_folder
from emlio_bench.race.needs.making import make_missing
from emlio_bench.race.run.joules import Joules
from emlio_bench.race.run.one_machine import children, trees_cpu_ns
from emlio_bench.race.servers.remote_folder import serving_mount, why_no_mount, why_no_served_folder

__all__ = ["COMMAND", "SUBJECTS", "DlioSettings", "run_dlio"]

SUBJECTS: Final[Mapping[str, str]] = {
    "no-io": "synthetic",
    "stock-local": "stock",
    "stock-remote": "stock",
    "emlio": "emlio",
}
"""The subjects, and the loader that DLIO is told."""

_MOST_STALLED: Final = 90


def _period(value: Any) -> int:
    words = {"step": 1, "epoch": 0}
    if value in words:
        return words[value]
    if not str(value).isdigit() or int(value) < 1:
        raise ConfigError(f"must be step, epoch or a number of steps, got {value!r}")
    return int(value)


def _part(value: Any) -> float:
    text = str(value)
    if not text.endswith("%") or not text[:-1].isdigit() or not 1 <= int(text[:-1]) <= _MOST_STALLED:
        raise ConfigError(f"must be a percentage from 1% to {_MOST_STALLED}%, got {value!r}")
    return int(text[:-1]) / 100


def _counts(value: Any) -> tuple[int, ...]:
    numbers = str(value).split(",")
    if not all(number.isdigit() and int(number) for number in numbers) or len(set(numbers)) != len(numbers):
        raise ConfigError(f"must be different whole numbers of at least 1, such as 1,2,4, got {value!r}")
    return tuple(map(int, numbers))


def _steps(value: Any) -> int:
    if not str(value).isdigit() or int(value) < 2:
        raise ConfigError(f"must be a whole number of at least 2, got {value!r}")
    return int(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DlioSettings(CommonSettings):
    """`emlio-bench dlio`. The data lie on the disk of `--data` and leave the page cache before each epoch."""

    workload: tuple[str, ...] = names(tuple(WORKLOADS), "the workloads (default unet3d)", ("unet3d",))
    accelerator: str = chosen(ACCELERATORS, "whose computation time a step takes", "NAME")
    scale: str = chosen(SCALES, "how much of the workload is read: see docs/reference/benchmarks.md", "NAME")
    steps: int = option(0, "steps of an epoch (default: as the scale has it)", parse=_steps, metavar="N")
    epochs: int = count(2, "epochs of a run")
    ranks: tuple[int, ...] = option((1,), "emulated accelerators of a run (default 1)", parse=_counts, metavar="N,...")
    rtt: tuple[int, ...] = durations("30ms", "round trips of the link between storage and training")
    barrier: int = option(
        1,
        "step (as DLIO has it), epoch, or a number of steps: when ranks wait for each other (default step)",
        parse=_period,
        metavar="WHEN",
    )
    stall: float = option(
        0.0,
        "stop the daemon of rank 0 for the length of a step, at random, for this part of the time, such as 10% (default: never)",
        parse=_part,
        metavar="PART",
    )
    search: bool = flag("find how many accelerators, up to --ranks, each subject feeds at an AU of 90 %")
    subjects: tuple[str, ...] = names(tuple(SUBJECTS), "who is measured")
    warm: bool = flag("keep the data in the page cache")
    repeats: int = count(3, "rounds; one run of each subject in each")
    cache: Path | None = folder("folder of environments (default: ~/.cache/emlio-bench)")

    def __post_init__(self) -> None:
        super(DlioSettings, self).__post_init__()  # a class with slots is not the one that super() knows
        single = [name for name in self.workload if WORKLOADS[name].batches_per_file is None]
        if self.search and single:
            raise ConfigError(f"--search needs workloads of several files, {single[0]} has one")
        if self.search and len(self.ranks) > 1:
            raise ConfigError(
                f"--search needs one number of --ranks, the most to try, got {','.join(map(str, self.ranks))}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The surroundings that runs of a scenario share: the task, its data and placeholders, the link, the cache, and joules."""

    task: Task
    data: Path
    placeholders: Path
    link: Link
    rtt_ns: int
    cache: Path
    settings: DlioSettings
    scratch: Path
    joules: Joules | None

    @property
    def scenario(self) -> str:
        """The name of the scenario."""
        return scenario_name(self.task, self.rtt_ns, self.settings.barrier)


def run_dlio(settings: DlioSettings, world: World) -> Results:
    """Measure all subjects with all workloads, ranks and links, in turns. Results of what was done outlive an interruption."""
    tasks = [
        Task(
            workload=workload,
            accelerator=settings.accelerator,
            scale="tiny" if settings.quick else settings.scale,
            ranks=ranks,
            epochs=settings.epochs,
            steps=settings.steps,
        )
        for workload in settings.workload
        for ranks in settings.ranks
    ]
    cache = usable_cache_folder(settings.cache, world.environment)
    _make_environments(tasks, cache, world)
    missing = {"stock-remote": why_no_mount(cache) or why_no_served_folder(cache)}
    subjects = [name for name in settings.subjects if not missing.get(name)]
    told = _told(tasks, settings)
    told["left out"] = "; ".join(f"{name} {missing[name]}" for name in settings.subjects if missing.get(name))
    rounds = 1 if settings.quick else settings.repeats
    runs: list[Run] = []
    fed: list[Figure] = []
    with TemporaryDirectory(prefix="emlio-bench-dlio-") as name, data_root(settings.data) as root, ExitStack() as stack:
        scratch = Path(name)
        joules = None if settings.quick else stack.enter_context(Joules(scratch))
        if joules is not None:
            joules.rest()
        try:
            for place in _places(tasks, settings, root=root, scratch=scratch, cache=cache, joules=joules):
                if settings.search:
                    _search(place, subjects, rounds, runs, fed)
                else:
                    _turns(place, subjects, rounds, runs)
        except KeyboardInterrupt:
            if not runs:
                raise
            told["interrupted"] = f"runs until then: {len(runs)}"
    bounded = not settings.quick and settings.scale == "fit"
    figures = [*fed, failed_figure(runs)] if settings.search else dlio_figures(runs, bounded=bounded)
    if "interrupted" in told:
        figures.append(figure("interrupted", "", [1], at_most=0))
    return results_of("dlio", told, figures, runs)


def _places(
    tasks: Sequence[Task], settings: DlioSettings, *, root: Path, scratch: Path, cache: Path, joules: Joules | None
) -> Generator[_Place]:
    """Yield the surroundings of each scenario. A link is there until the next one is asked for."""
    made = [made_data(task, root, cache) for task in tasks]  # what fails here must not cost what was measured
    for task, data in zip(tasks, made, strict=True):
        for rtt_ns in settings.rtt:
            placeholders = placeholders_of(task, data, scratch / f"{task.workload}-x{task.ranks}-{rtt_text(rtt_ns)}")
            with open_link(LinkSpec(rtt_ns=rtt_ns)) as link:
                yield _Place(
                    task=task,
                    data=data,
                    placeholders=placeholders,
                    link=link,
                    rtt_ns=rtt_ns,
                    cache=cache,
                    settings=settings,
                    scratch=scratch,
                    joules=joules,
                )


def _turns(place: _Place, subjects: Sequence[str], rounds: int, runs: list[Run]) -> None:
    """Run each subject once in each round; add to `runs`."""
    with Progress(place.scenario, rounds * len(subjects)) as bar:
        for number in range(rounds):
            for turn, name in enumerate(rotated(subjects, number)):
                runs.append(_run(name, place, number, turn))
                bar.add(1)


def _search(place: _Place, subjects: Sequence[str], rounds: int, runs: list[Run], fed: list[Figure]) -> None:
    """Find for each subject the greatest number of ranks that it feeds; add to `runs` and `fed`."""
    counts: dict[str, int] = {}
    first = len(runs)
    for name in subjects:
        with Progress(f"{name}, up to {place.scenario}", place.task.ranks.bit_length() * rounds) as bar:

            def feeds(ranks: int, name: str = name, bar: Progress = bar) -> bool:
                part = _part_of(place, ranks)
                tried: list[Run] = []
                while len(tried) < rounds and not is_decided(tried, rounds):
                    tried.append(_run(name, part, len(tried), 0))
                    runs.append(tried[-1])
                    bar.add(1)
                return is_fed(tried)

            counts[name] = greatest(place.task.ranks, feeds)
        fed.append(search_figure(place.scenario, name, counts[name]))
    failed = {run.subject for run in runs[first:] if run.failure is not None}
    fed += search_ratio(place.scenario, {name: number for name, number in counts.items() if name not in failed})


def _part_of(place: _Place, ranks: int) -> _Place:
    task = replace(place.task, ranks=ranks)
    data = part_of(place.data, task, place.task)
    return replace(place, task=task, data=data, placeholders=placeholders_of(task, data, place.scratch / f"x{ranks}"))


def _told(tasks: Sequence[Task], settings: DlioSettings) -> dict[str, object]:
    return {
        **{
            f"{task.workload} x{task.ranks}": (
                f"{task.accelerator}, {task.step_s:g} s a step{task.told}; {format_size(task.size_bytes)} in {task.files} files "
                f"of {task.format}, records of about {format_size(task.record_bytes)} (DLIO's / {task.size.shrink}), batches of "
                f"{task.size.batch}, {task.size.steps} steps an epoch and rank; {format_size(round(task.needed_bytes_per_s))}/s "
                f"where no rank waits{_stall_text(settings, task.ranks)}"
            )
            for task in tasks
        },
        "epochs": settings.epochs,
        "barrier": {0: "epoch", 1: "step"}.get(settings.barrier, f"every {settings.barrier} steps"),
        "cache": "warm" if settings.warm else "cold: data leave the page cache before each epoch",
        "round trips": tuple(map(rtt_text, settings.rtt)),
    }


def _stall_text(settings: DlioSettings, ranks: int) -> str:
    if not settings.stall:
        return ""
    au = utilisation_without_reading_ahead(settings.stall, ranks, settings.barrier)
    return (
        f"; the daemon of rank 0 stands still for {settings.stall:.0%} of all steps' lengths, at random: AU would be {au:.1f} % "
        "without reading ahead"
    )


def _make_environments(tasks: Sequence[Task], cache: Path, world: World) -> None:
    tensorflow = any(task.format == "tfrecord" for task in tasks)
    failed = make_missing((ENVIRONMENT, TENSORFLOW) if tensorflow else (ENVIRONMENT,), cache, world.tell, world.agree)
    if failed:
        raise ConfigError(f"DLIO needs its environments: {'; '.join(failed.values())}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The data as a subject sees them.

    Attributes:
        folder: DLIO's data folder.
        addresses: of EMLIO's daemons, for each rank in turns.
        servers: processes that serve.
        clients: processes of a mount.
        stalled_s: returns how long a server stood still.
    """

    folder: Path
    addresses: tuple[str, ...] = ()
    servers: frozenset[int] = frozenset()
    clients: frozenset[int] = frozenset()
    stalled_s: Callable[[], float | None] = lambda: None


def _run(name: str, place: _Place, number: int, turn: int) -> Run:
    made = partial(Run, scenario=place.scenario, subject=name, round=number, place=turn)
    try:
        with TemporaryDirectory(prefix=f"{name}-", dir=place.scratch) as scratch:
            out = Path(scratch)
            with _seen(name, place, out, number) as seen:
                before = trees_cpu_ns(seen.servers), trees_cpu_ns(seen.clients)
                output = run_job(
                    place.task,
                    SUBJECTS[name],
                    seen.folder,
                    out / "written",
                    cache=place.cache,
                    end=place.link.training,
                    period=place.settings.barrier,
                    cold=() if place.settings.warm else list({place.data, seen.folder}),
                    addresses=seen.addresses,
                )
                storage_ns, client_ns = trees_cpu_ns(seen.servers) - before[0], trees_cpu_ns(seen.clients) - before[1]
                stalled_s = seen.stalled_s()
                if stalled_s == 0:
                    raise TransportError(
                        "the daemon of rank 0 must stand still at least once, it did not: take more --steps"
                    )
    except TransportError as error:
        return made(failure=str(error))
    training_ns = client_ns + sum(one.cpu_ns for one in output.figures)
    energy = _energy(place.joules, output, training_ns, storage_ns)
    values = values_of(
        place.task, output, training_ns=training_ns, storage_ns=storage_ns, energy=energy, stalled_s=stalled_s
    )
    return made(values=values, words={"energy": "" if energy is None else energy.told})


def _energy(joules: Joules | None, output: Output, training_ns: int, storage_ns: int) -> Any:
    if joules is None:
        return None
    begun_ns, ended_ns = min(one.begun_ns for one in output.figures), max(one.ended_ns for one in output.figures)
    spinning_ns = sum(one.barrier_cpu_ns for one in output.figures)
    return joules.used(begun_ns, ended_ns, compute_cpu_ns=training_ns + spinning_ns, storage_cpu_ns=storage_ns)


@contextmanager
def _seen(name: str, place: _Place, out: Path, number: int) -> Generator[_Seen]:
    """Serve the data to a subject while the block lasts."""
    others = children()
    with ExitStack() as stack:
        if name == "emlio":
            daemons = [_daemon(place, out / "indexes", stack)]
            stall = place.settings.stall
            if stall and place.task.ranks > 1:  # the others read from another daemon
                daemons += [_daemon(place, out / "more", stack)] * (place.task.ranks - 1)
            stalled_s = stack.enter_context(stalled(daemons[0].pid, stall, place.task.step_s, number))
            yield _Seen(
                folder=place.placeholders,
                addresses=tuple(one.address for one in daemons),
                servers=children() - others,
                stalled_s=stalled_s if stall else lambda: None,
            )
        elif name == "stock-remote":
            url = stack.enter_context(serving_mount(place.data, place.link, place.cache))
            servers = children() - others
            order = {"url": url, "folder": str(out / "remote"), "options": {"mount": "tuned"}}
            folder = Path(stack.enter_context(mounted(order, place.link.training.command))["url"])
            yield _Seen(folder=folder, servers=servers, clients=children() - others - servers)
        else:
            yield _Seen(folder=place.data if name == "stock-local" else place.placeholders)


def _daemon(place: _Place, indexes: Path, stack: ExitStack) -> RunningDaemon:
    flags = ("--cache-dir", str(indexes), *(() if place.settings.warm else ("--io", "direct")))
    dataset = place.data / (f"{ROWS}?format=npy-rows" if place.task.format == INDEXED else "train")
    return stack.enter_context(running_daemon(dataset, flags, link=place.link))


COMMAND: Final = Command(
    name="dlio",
    settings=DlioSettings,
    run=run_dlio,
    text="accelerator utilisation as DLIO computes it: its own loaders on a disk and a remote folder, and EMLIO's",
    parts=dlio_parts,
    draw=draw_dlio,
)
