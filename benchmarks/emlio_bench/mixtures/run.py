"""`emlio-bench mixtures`: three datasets read as one in given proportions, by EMLIO and by loaders that can do it, too.

Each run is a new server and a new loader whose host has an empty cache folder, over a new emulated link. An epoch counts from
before the loader's constructor, imports done, to its last batch. All loaders take turns; every round begins with another one.
Exactness is counted from the ids of all records that were handed out.

Covers: the whole command, from settings to results. Does not cover: who takes part (emlio_bench.mixtures.contests), one run
(emlio_bench.race.run.measure), counting (emlio_bench.mixtures.exactness), the report (emlio_bench.mixtures.report).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from emlio.errors import DatasetError
from emlio.progress import Progress
from emlio.units import format_size
from emlio_bench.experiment.figures import figure
from emlio_bench.formats.outcome import FIRST_BATCH, FIRST_EPOCH, RATE
from emlio_bench.harness.data import data_root, memory_root
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.page import RESULTS
from emlio_bench.harness.results import Figure, write_results
from emlio_bench.harness.runner import rotated
from emlio_bench.link.choice import choose_kind
from emlio_bench.link.contract import LinkKind
from emlio_bench.link.spec import LinkSpec
from emlio_bench.mixtures.contests import Field, fields_of
from emlio_bench.mixtures.exactness import Draws
from emlio_bench.mixtures.outcome import MixturesResults, draws_of, is_faultless, without_ids
from emlio_bench.mixtures.settings import MixturesSettings
from emlio_bench.race.needs.environments import cache_folder
from emlio_bench.race.outcome import Run
from emlio_bench.race.run.measure import Job, run_once
from emlio_bench.race.run.one_machine import OneMachine
from emlio_bench.race.run.turns import is_worth_while
from emlio_bench.subjects.iperf import find_iperf

__all__ = ["run_mixtures"]

_COPIES: Final = 8
"""The room in memory, in payloads of an epoch: the records, and two mixtures in three formats."""


def run_mixtures(
    settings: MixturesSettings, environment: Mapping[str, str], tell: Callable[[str], None]
) -> MixturesResults:
    """Measure all rounds, and return the results, which are also written after each round.

    Args:
        settings: settings of the command.
        environment: environment variables; XDG_CACHE_HOME is used if present.
        tell: called with each line of progress that matters without a terminal, too.
    """
    kind, missing = choose_kind(settings.kind)
    for reason in missing:
        tell(f"no link of the kind {reason}")
    fields = fields_of(settings, cache_folder(settings.cache, environment), tell)
    for entrant in {one.subject: one for field in fields for one in field.unable}.values():
        tell(f"{entrant.subject} does not take part: it {entrant.missing}")
    entrants = [one for field in fields for one in (*(entry.entrant for entry in field.entries), *field.unable)]
    results = MixturesResults(
        environment=read_environment(find_iperf()),
        settings=_told(settings, kind),
        begun=datetime.now(UTC).isoformat(timespec="seconds"),
        mixes=tuple(field.mix for field in fields),
        window=settings.window,
        contests=tuple(field.contest for field in fields),
        entrants=tuple({one.subject: one for one in entrants}.values()),
    )
    write_results(results, settings.out / RESULTS)  # a folder that cannot be written is found before hours of measuring
    side = OneMachine(kind)
    with _root(settings) as folder:
        prepared = _prepare(fields, folder)
        if not settings.tiny:
            tell("measuring the link")
            results = replace(results, links=(side.measure(LinkSpec(rtt_ns=settings.rtt)),))
        total = settings.round_count * sum(len(field.entries) for field in fields)
        with Progress("runs", total) as bar:
            for number in range(settings.round_count):
                for run, draws in _round(fields, number, prepared, side, kind, results.runs):
                    results = replace(results, runs=(*results.runs, run), draws=(*results.draws, *draws))
                    if run.failure is not None:
                        tell(f"{run.contest}: {run.subject} failed: {run.failure.splitlines()[0]}")
                    bar.add(1)
                tell(f"round {number + 1} of {settings.round_count} is over")
                results = replace(results, figures=tuple(_figures(results)))
                write_results(results, settings.out / RESULTS)
    return results


def _root(settings: MixturesSettings) -> AbstractContextManager[Path]:
    """Provide the folder for datasets: the user's, or a temporary one in memory."""
    return memory_root("mixtures", _COPIES * settings.size) if _in_memory(settings) else data_root(settings.data)


def _in_memory(settings: MixturesSettings) -> bool:
    return settings.data is None and not settings.tiny


def _told(settings: MixturesSettings, kind: LinkKind) -> tuple[tuple[str, str], ...]:
    return (
        ("mixes", ",".join(settings.mixes)),
        ("subjects", ",".join(settings.subjects)),
        ("every", str(settings.every).lower()),
        ("payload", format_size(settings.size)),
        ("rtt", f"{settings.rtt / 1e6:g} ms"),
        ("rounds", str(settings.round_count)),
        ("link", str(kind)),
        ("data", "in memory" if _in_memory(settings) else "in a folder, read into the page cache before each run"),
        ("limit", f"{settings.limit / 1e9:g} s"),
        *([("tiny", "true")] if settings.tiny else []),
    )


def _prepare(fields: Sequence[Field], folder: Path) -> dict[tuple[str, str], Path]:
    """Write the datasets in all formats, once; return their folders by contest and subject."""
    prepared: dict[tuple[str, str], Path] = {}
    with Progress("formats", sum(len(field.entries) for field in fields)) as bar:
        for field in fields:
            for entry in field.entries:
                prepared[field.contest.name, entry.system.name] = entry.system.prepare(field.contest.corpus, folder)
                bar.add(1)
    return prepared


def _round(
    fields: Sequence[Field],
    number: int,
    prepared: Mapping[tuple[str, str], Path],
    side: OneMachine,
    kind: LinkKind,
    before: Sequence[Run],
) -> Iterator[tuple[Run, tuple[Draws, ...]]]:
    """Run everybody once.

    Raises:
        DatasetError: EMLIO failed, or its epoch was not the one that the weights ask for.
    """
    for field in fields:
        contest = field.contest
        for place, entry in enumerate(rotated(field.entries, number)):
            subject = entry.system.name
            earlier = [run for run in before if (run.contest, run.subject) == (contest.name, subject)]
            if not is_worth_while(earlier):
                continue
            job = Job(
                contest=contest,
                system=entry.system,
                setting=entry.setting,
                prepared=prepared[contest.name, subject],
                spec=LinkSpec(rtt_ns=contest.rtt_ns),
                kind=kind,
                round=number,
                place=place,
                seed=number + 1,
            )
            run = run_once(job, None, side)
            draws = (draws_of(run, field.mix),) if run.epochs else ()
            if entry.entrant.family == "ours":
                _check(run, draws, field)
            yield without_ids(run), draws


def _check(run: Run, draws: Sequence[Draws], field: Field) -> None:
    if run.failure is not None:
        raise DatasetError(f"{run.contest}: {run.subject} must be read, it failed: {run.failure}")
    if not run.cut and not all(is_faultless(one, field.mix) for one in draws):
        one = draws[0]
        counts = [one.drawn().sources.tolist().count(number) for number in range(len(field.mix.sizes))]
        raise DatasetError(
            f"{run.contest}: {run.subject} must bring {field.mix.draws} records of the datasets, none again before its "
            f"dataset is through, brought {tuple(counts)}, {one.distinct} of them distinct, {one.early} too early"
        )


def _figures(results: MixturesResults) -> Iterator[Figure]:
    """Yield the quantities as figures, by which results are compared and reported elsewhere."""
    for contest in results.contests:
        for subject in results.subjects(contest):
            runs = results.of(contest, subject)
            for measure in (FIRST_EPOCH, FIRST_BATCH, RATE):
                values = [one.value for one in measure.of(runs)]
                if values:
                    name = f"{contest.name}, {subject}: {measure.name.partition(',')[0]}"
                    yield figure(name, measure.unit, values)
            for words, counted in (
                ("window", results.windows(contest, subject)),
                ("batch", results.batches(contest, subject)),
            ):
                if counted:
                    largest = [float(abs(one).max()) for one in counted]
                    yield figure(f"{contest.name}, {subject}: largest deviation in a {words}", "records", largest)
