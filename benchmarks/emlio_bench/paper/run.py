"""`emlio-bench paper`: the paper's figures, measured on this machine, or between two by `--storage`.

Every figure is one or more tasks at each round trip, and the subjects take turns in each. All figures
together are one race, with its link, its energy, and its file, from which an interrupted run
continues.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from emlio.errors import ClosedError, ConfigError
from emlio.units import format_duration
from emlio_bench.decode.subjects import is_installed
from emlio_bench.harness.command import Command, World
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.cuda import why_no_gpu
from emlio_bench.harness.results import Results
from emlio_bench.link.contract import LinkKind
from emlio_bench.paper.figures import Figure, Task, contest_of, figures_of
from emlio_bench.paper.plot import draw_paper
from emlio_bench.paper.report import paper_parts
from emlio_bench.paper.scale import Scale, limit_ns, records_of, rounds_of, too_short
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.paper.sides import Side, open_side
from emlio_bench.race.needs.environments import usable_cache_folder
from emlio_bench.race.run.kept import KeptResults
from emlio_bench.race.run.race import FORMS
from emlio_bench.race.run.turns import Field, Turns
from emlio_bench.race.servers.scratch import remove_leftovers
from emlio_bench.race.systems.entries import Entry, all_rivals, entered

__all__ = ["COMMAND", "elsewhere", "possible", "run_paper"]

_DEVICE: Final = "cuda"


def run_paper(settings: PaperSettings, world: World) -> Results:
    """Run what has not run yet, and return all of it."""
    tell = world.tell
    remove_leftovers()
    cache = usable_cache_folder(settings.cache, world.environment)
    figures = figures_of(settings.figure, real=settings.real)
    if settings.real and (reason := _why_no_real_model()) is not None:
        raise ConfigError(f"--model real trains on a GPU: {reason}")
    figures = possible(figures, settings, _why_no_training(makes_records=not settings.storage), tell)
    with ExitStack() as stack:
        names = {subject for figure in figures for task in figure.tasks for subject, _ in task.subjects}
        systems = [system for system in all_rivals(cache, settings.mount) if system.name in names]
        side = open_side(stack, settings, systems, tell, forms=cache / FORMS)
        contests, records = _contests(settings, figures, side)
        if (warning := too_short(records, settings.scale)) is not None:
            tell(warning)
        rtts_ns = sorted({contest.rtt_ns for contest in contests.values()})
        able, unable = entered(
            systems,
            rtts_ns,
            cache=cache,
            every=True,
            make=not settings.no_install,
            tell=tell,
            agree=world.agree,
            lacks=side.lacks,
        )
        wanted = {subject for task in records for subject in task.subjects}
        able = tuple(entry for entry in able if entry.who in wanted)
        unable = tuple(one for one in unable if (one.subject, one.setting) in wanted)
        if not able:
            raise ConfigError("at least one system must be able to run; the reasons are above")
        entrants = [*(entry.entrant for entry in able), *unable]
        kept = KeptResults(settings.out, "paper", (*settings.told(), *side.told), contests.values(), entrants)
        joules, why_not = side.start_energy(stack, settings, tell)
        kept.put(no_energy=why_not)
        for line in elsewhere(records, settings.rtt):
            tell(line)
        turns = Turns(kept, side.side, tell, joules=joules)
        for task in records:
            entries = tuple(_with_model(entry, task) for entry in able if entry.who in task.subjects)
            rounds = 1 if settings.scale is Scale.TINY else rounds_of(task, settings.rounds)
            fields = [Field(contest=contest, entries=entries) for (of, _), contest in contests.items() if of is task]
            try:
                turns.hold(turns.prepare(fields, cache / FORMS, rounds), rounds)
            except ClosedError as error:
                raise ClosedError(f"{error}; the same command, typed again, goes on") from error
    return kept.results


def elsewhere(tasks: Iterable[Task], rtts_ns: Sequence[int]) -> tuple[str, ...]:
    """Return a sentence for each task that runs at other round trips than those asked for.

    Args:
        tasks: the tasks.
        rtts_ns: the round trips that the user named; empty for none.
    """
    return tuple(
        f"{task.name} runs over {' and '.join(map(format_duration, task.rtts_ns))} only, which --rtt does not change"
        for task in tasks
        if rtts_ns and task.rtts_ns and set(task.rtts_ns) != set(rtts_ns)
    )


def _why_no_real_model() -> str | None:
    """Return why no real model can be trained here, or None."""
    lacks = [module for module in ("torch", "torchvision", "nvidia.dali") if not is_installed(module)]
    return why_no_gpu() or (f"{', '.join(lacks)} must be installed and is not" if lacks else None)


def _why_no_training(*, makes_records: bool) -> str | None:
    """Return why this host cannot train for figure 11; None if it can. The pictures need scikit-learn."""
    lacks = [module for module in ("torch", *(("sklearn",) if makes_records else ())) if not is_installed(module)]
    return f"{' and '.join(lacks)} must be installed: pip install torch scikit-learn" if lacks else None


def _with_model(entry: Entry, task: Task) -> Entry:
    """Return the entry whose consumer trains the task's model, if it has one."""
    if not task.model:
        return entry
    options = (*entry.setting.options, ("model", task.model), ("device", _DEVICE))
    return replace(entry, setting=replace(entry.setting, options=options))


def possible(
    figures: Sequence[Figure], settings: PaperSettings, why_not: str | None, tell: Callable[[str], None]
) -> tuple[Figure, ...]:
    """Leave out figures that this host cannot train for; refuse them if they were asked for by number.

    Args:
        figures: the figures of the settings.
        settings: settings of the command.
        why_not: why this host cannot train; None if it can.
        tell: called with the reason for each figure that is left out.

    Raises:
        ConfigError: a figure that was named by its number cannot be measured.
    """
    left_out = [figure for figure in figures if figure.trains and why_not is not None]
    for figure in left_out:
        if settings.figure:
            raise ConfigError(f"figure {figure.number} cannot be measured: {why_not}")
        tell(f"figure {figure.number} is left out: {why_not}")
    return tuple(figure for figure in figures if figure not in left_out)


def _contests(
    settings: PaperSettings, figures: Sequence[Figure], side: Side
) -> tuple[dict[tuple[Task, int], Contest], dict[Task, int]]:
    """Return the contests by task and round trip, and the records of each task.

    Over a real network all tasks have its round trip, also those that are measured at one only.
    """
    real = side.kind is LinkKind.REAL
    records = records_of(figures, side.rtts_ns, settings.scale, within_ns=settings.within, rounds=settings.rounds)
    contests = {
        (task, rtt_ns): contest_of(task, rtt_ns, records=count, limit_ns=limit_ns(task, count, rtt_ns))
        for task, count in records.items()
        for rtt_ns in (side.rtts_ns if real else task.rtts_ns or side.rtts_ns)
    }
    return contests, records


COMMAND: Final = Command(
    name="paper",
    settings=PaperSettings,
    run=run_paper,
    text="the paper's figures with the paper's systems, compared with the paper's numbers",
    parts=paper_parts,
    draw=draw_paper,
    keeps=True,
)
