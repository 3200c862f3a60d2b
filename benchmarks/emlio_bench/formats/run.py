"""`emlio-bench formats`: the same records in several formats, served as they lie.

Each run is a new daemon and a new loader whose host has an empty cache folder, over loopback or a
new emulated link. An epoch counts from before the loader's constructor, imports done, to its last
batch. All formats take turns; every round begins with another one. The daemon's first start, which
indexes a folder, is timed apart, and no run includes it.

Covers: the whole command, from settings to results. Does not cover: who takes part
(emlio_bench.formats.contests), one run (emlio_bench.race.run.measure), the report
(emlio_bench.formats.report).
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
from emlio_bench.formats.contests import Field, beside_field, form_fields
from emlio_bench.formats.first_start import start_seconds
from emlio_bench.formats.outcome import CPU_BOTH, FIRST_BATCH, FIRST_EPOCH, ON_DISK, RATE, FormatsResults, Start
from emlio_bench.formats.settings import FormatsSettings
from emlio_bench.formats.subjects import ServedForm
from emlio_bench.harness.data import data_root, memory_root
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.page import RESULTS
from emlio_bench.harness.results import Figure, write_results
from emlio_bench.harness.runner import rotated
from emlio_bench.link.choice import choose_kind
from emlio_bench.link.contract import Link, LinkEnd, LinkKind
from emlio_bench.link.kinds.real import RealLink
from emlio_bench.link.spec import LinkSpec
from emlio_bench.race.needs.environments import cache_folder
from emlio_bench.race.outcome import Entrant, Run
from emlio_bench.race.run.measure import Job, run_once
from emlio_bench.race.run.one_machine import OneMachine, warm
from emlio_bench.race.run.turns import is_worth_while
from emlio_bench.subjects.iperf import find_iperf

__all__ = ["run_formats"]

_COPIES: Final = 10
"""The room in memory, in payloads of an epoch, for all formats and for other systems' own data."""


def run_formats(
    settings: FormatsSettings, environment: Mapping[str, str], tell: Callable[[str], None]
) -> FormatsResults:
    """Measure all rounds, and return the results, which are also written after each round.

    Args:
        settings: settings of the command.
        environment: environment variables; XDG_CACHE_HOME is used if present.
        tell: called with each line of progress that matters without a terminal, too.
    """
    kind, missing = choose_kind(settings.kind)
    for reason in missing:
        tell(f"no link of the kind {reason}")
    fields = form_fields(settings)
    if settings.beside:
        beside = beside_field(settings, cache_folder(settings.cache, environment), tell)
        for entrant in beside.unable:
            tell(f"{entrant.subject} does not take part: it {entrant.missing}")
        fields.append(beside)
    results = FormatsResults(
        environment=read_environment(find_iperf()),
        settings=_told(settings, kind),
        begun=datetime.now(UTC).isoformat(timespec="seconds"),
        contests=tuple(field.contest for field in fields),
        entrants=_entrants(fields),
    )
    write_results(results, settings.out / RESULTS)  # a folder that cannot be written is found before hours of measuring
    sides = {True: OneMachine(kind), False: OneMachine(LinkKind.REAL, make=_loopback)}
    with _root(settings) as folder:
        prepared = _prepare(fields, folder)
        if not settings.tiny and any(field.over_link for field in fields):
            tell("measuring the link")
            results = replace(results, links=(sides[True].measure(LinkSpec(rtt_ns=settings.rtt)),))
        results = replace(results, starts=tuple(_starts(fields, prepared)))
        total = settings.round_count * sum(len(field.entries) for field in fields)
        with Progress("runs", total) as bar:
            for number in range(settings.round_count):
                for run in _round(fields, number, prepared, sides, kind, results.runs):
                    results = replace(results, runs=(*results.runs, run))
                    if run.failure is not None:
                        tell(f"{run.contest}: {run.subject} failed: {run.failure.splitlines()[0]}")
                    bar.add(1)
                tell(f"round {number + 1} of {settings.round_count} is over")
                results = replace(results, figures=tuple(_figures(results)))
                write_results(results, settings.out / RESULTS)
    return results


def _root(settings: FormatsSettings) -> AbstractContextManager[Path]:
    """Provide the folder for datasets: the user's, or a temporary one in memory."""
    return memory_root("formats", _COPIES * settings.size) if _in_memory(settings) else data_root(settings.data)


def _told(settings: FormatsSettings, kind: LinkKind) -> tuple[tuple[str, str], ...]:
    return (
        ("formats", ",".join(settings.formats)),
        ("payload", format_size(settings.size)),
        ("rtt", f"{settings.rtt / 1e6:g} ms"),
        ("rounds", str(settings.round_count)),
        ("beside", str(settings.beside).lower()),
        ("link", str(kind)),
        ("data", "in memory" if _in_memory(settings) else "in a folder, read into the page cache before each run"),
        ("limit", f"{settings.limit / 1e9:g} s"),
        *([("tiny", "true")] if settings.tiny else []),
    )


def _in_memory(settings: FormatsSettings) -> bool:
    return settings.data is None and not settings.tiny


def _entrants(fields: Sequence[Field]) -> tuple[Entrant, ...]:
    found = [entrant for field in fields for entrant in (*(one.entrant for one in field.entries), *field.unable)]
    return tuple({entrant.subject: entrant for entrant in found}.values())


def _loopback(spec: LinkSpec, kind: LinkKind) -> Link:
    """Return this machine's own loopback as a link."""
    end = LinkEnd(address="127.0.0.1", listen="127.0.0.1", namespace=None)
    return RealLink(spec, storage=end, training=end)


def _prepare(fields: Sequence[Field], folder: Path) -> dict[tuple[str, str], Path]:
    """Write all formats, once; return their folders by contest and subject."""
    entries = [(field, entry) for field in fields for entry in field.entries]
    prepared: dict[tuple[str, str], Path] = {}
    with Progress("formats", len(entries)) as bar:
        for field, entry in entries:
            system = entry.system
            prepared[field.contest.name, system.name] = system.prepare(field.contest.corpus, folder)
            bar.add(1)
    return prepared


def _starts(fields: Sequence[Field], prepared: Mapping[tuple[str, str], Path]) -> Iterator[Start]:
    """Time the first start of a daemon on each format."""
    seen: set[str] = set()
    for field in fields:
        for entry in field.entries:
            system = entry.system
            if not isinstance(system, ServedForm) or system.name in seen:
                continue
            seen.add(system.name)
            folder = prepared[field.contest.name, system.name]
            warm(folder)
            first_s, later_s = start_seconds(folder, system.options(folder))
            yield Start(subject=system.name, first_s=first_s, later_s=later_s)


def _round(
    fields: Sequence[Field],
    number: int,
    prepared: Mapping[tuple[str, str], Path],
    sides: Mapping[bool, OneMachine],
    kind: LinkKind,
    before: Sequence[Run],
) -> Iterator[Run]:
    """Run everybody once.

    Raises:
        DatasetError: a loader of EMLIO failed, or a record did not come exactly once.
    """
    for field in fields:
        contest = field.contest
        for place, entry in enumerate(rotated(field.entries, number)):
            if not is_worth_while([run for run in before if _key(run) == (contest.name, entry.system.name)]):
                continue
            job = Job(
                contest=contest,
                system=entry.system,
                setting=entry.setting,
                prepared=prepared[contest.name, entry.system.name],
                spec=LinkSpec(rtt_ns=contest.rtt_ns),
                kind=kind if field.over_link else LinkKind.REAL,
                round=number,
                place=place,
                seed=number + 1,
            )
            run = run_once(job, None, sides[field.over_link])
            if entry.entrant.family == "ours":
                _check(run, field)
            yield run


def _key(run: Run) -> tuple[str, str]:
    return run.contest, run.subject


def _check(run: Run, field: Field) -> None:
    if run.failure is not None:
        raise DatasetError(f"{run.contest}: {run.subject} must be read, it failed: {run.failure}")
    epoch = run.epochs[0]
    if not epoch.cut and not epoch.is_exact(field.contest.corpus):
        raise DatasetError(
            f"{run.contest}: {run.subject} must bring each of {field.contest.corpus.records:,} records once, brought "
            f"{epoch.records:,}, {epoch.distinct:,} of them distinct"
        )


def _figures(results: FormatsResults) -> Iterator[Figure]:
    """Yield the quantities as figures, by which results are compared and reported elsewhere."""
    for start in results.starts:
        yield figure(f"first start, {start.subject}", "s", [start.first_s])
    for contest in results.contests:
        for subject in results.subjects(contest):
            runs = results.of(contest, subject)
            for measure in (FIRST_EPOCH, FIRST_BATCH, RATE, *CPU_BOTH, ON_DISK):
                values = [one.value for one in measure.of(runs)]
                if values:
                    name = f"{contest.name}, {subject}: {measure.name.partition(',')[0]}"
                    yield figure(f"{name} CPU" if measure in CPU_BOTH else name, measure.unit, values)
