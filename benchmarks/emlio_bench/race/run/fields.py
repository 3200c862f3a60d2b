"""Races of a benchmark's own entrants: the same work in one or more contests, in rounds, with a report by contest."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from emlio.errors import DatasetError
from emlio.progress import Progress
from emlio.settings import option
from emlio.units import format_size
from emlio_bench.harness.command import World
from emlio_bench.harness.contest import Contest, Entrant
from emlio_bench.harness.data import data_root, memory_root
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.options import byte_size, count, duration, flag, folder
from emlio_bench.harness.parsers import link_kind, path
from emlio_bench.harness.plot import blank_figure, draw_bars, stamp
from emlio_bench.harness.report import Part, environment_table
from emlio_bench.harness.results import RESULTS, Figure, Results, Run, write_results
from emlio_bench.harness.runner import rotated
from emlio_bench.harness.spread import number, spread, text
from emlio_bench.harness.table import Table
from emlio_bench.link.choice import choose_kind
from emlio_bench.link.contract import MADE_KINDS, LinkKind
from emlio_bench.link.iperf import find_iperf
from emlio_bench.link.spec import LinkSpec
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.standing import Standing, same_round_ratio, standings
from emlio_bench.race.run.measure import Job, run_once
from emlio_bench.race.run.one_machine import OneMachine
from emlio_bench.race.run.turns import is_worth_while
from emlio_bench.race.run.values import Heard
from emlio_bench.race.systems.entries import Entry
from emlio_bench.race.systems.system import System

__all__ = ["Field", "FieldsSettings", "draw_fields", "entry_of", "fields_parts", "run_fields", "times_table"]

_COPIES: Final = 10
"""Times the payload that all formats together may take."""

Look = Callable[[Contest, Heard], dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldsSettings:
    """The options of such a benchmark."""

    size: int = byte_size("600MB", "about the payload of an epoch")
    rtt: int = duration("30ms", "round trip of the link")
    rounds: int = count(6, "rounds, in each of which everything is read once")
    limit: int = duration("60s", "time limit of an epoch; a longer one is cut and counts as longer than that")
    tiny: bool = flag("a few records and one round: shows that all works, measures nothing")
    data: Path | None = folder(
        "keep the datasets in this folder and use what is there (default: a temporary one in /dev/shm, in memory)"
    )
    cache: Path | None = folder("where other systems' environments lie (default ~/.cache/emlio-bench)")
    no_install: bool = flag("make no environments for other systems: a system without one does not take part")
    kind: LinkKind | None = option(
        None,
        f"implementation of the link, one of {', '.join(MADE_KINDS)} (default: the first of them that works here)",
        parse=link_kind,
        metavar="KIND",
    )
    out: Path = option(Path("emlio-bench-results"), "folder for results and report", parse=path, metavar="FOLDER")

    @property
    def round_count(self) -> int:
        """Number of rounds."""
        return 1 if self.tiny else self.rounds

    def records(self, record_bytes: int, tiny: int) -> int:
        """Return how many records have the payload; `tiny` at most where all is to be tiny."""
        wanted = max(self.size // record_bytes, 1)
        return min(wanted, tiny) if self.tiny else wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A contest with its entrants.

    Attributes:
        contest: the contest.
        entries: who takes part.
        unable: who cannot.
        over_link: whether a link lies between; else loopback.
    """

    contest: Contest
    entries: tuple[Entry, ...]
    unable: tuple[Entrant, ...] = ()
    over_link: bool = True


def entry_of(system: System) -> Entry:
    """Return a system of this benchmark's own, at its only setting."""
    setting, claim = system.settings(0)[0], system.claim
    entrant = Entrant(
        subject=system.name,
        setting=setting.name,
        words=setting.words,
        family=system.family,
        shuffles=claim.shuffles,
        exact=claim.exact,
        leaves_on_disk=claim.leaves_on_disk,
    )
    return Entry(system=system, setting=setting, entrant=entrant)


def run_fields(
    benchmark: str,
    fields: Sequence[Field],
    settings: FieldsSettings,
    world: World,
    told: Mapping[str, object],
    *,
    look: Look | None = None,
    wrong: Callable[[Run], str] = lambda run: "" if run.words.get("exact", "yes") == "yes" else run.words["exact"],
    first: Callable[[Sequence[Field], Mapping[tuple[str, str], Path]], Iterable[Figure]] | None = None,
) -> Results:
    """Run all rounds; results are kept after each.

    Args:
        benchmark: name of the benchmark.
        fields: contests and entrants.
        settings: its settings.
        world: see `World`.
        told: settings that it adds to the results.
        look: returns more values of a run.
        wrong: returns what is wrong with the records of a run of this loader; "" for nothing.
        first: returns figures that are measured before the runs, from where the data are.

    Raises:
        DatasetError: a run of this loader failed, or lost or repeated records.
    """
    kind = _kind(fields, settings, world)
    in_memory = settings.data is None and not settings.tiny
    entrants = [one for field in fields for one in (*(entry.entrant for entry in field.entries), *field.unable)]
    results = Results(
        benchmark=benchmark,
        environment=read_environment(find_iperf()),
        settings=(
            *((name, str(value)) for name, value in told.items()),
            ("payload", format_size(settings.size)),
            ("rtt", f"{settings.rtt / 1e6:g} ms"),
            ("rounds", str(settings.round_count)),
            ("link", str(kind)),
            ("data", "in memory" if in_memory else "in a folder, read into the page cache before each run"),
            ("limit", f"{settings.limit / 1e9:g} s"),
            *([("tiny", "true")] if settings.tiny else []),
        ),
        begun=datetime.now(UTC).isoformat(timespec="seconds"),
        contests=tuple(field.contest for field in fields),
        entrants=tuple({(one.subject, one.setting): one for one in entrants}.values()),
    )
    write_results(results, settings.out / RESULTS)  # a folder that cannot be written is found before hours of measuring
    with _root(benchmark, settings, in_memory=in_memory) as folder:
        prepared = {
            (field.contest.name, entry.system.name): entry.system.prepare(field.contest.corpus, folder)
            for field in fields
            for entry in field.entries
        }
        if not settings.tiny and any(field.over_link for field in fields):
            world.tell("measuring the link")
            results = replace(results, links=((benchmark, OneMachine(kind).measure(LinkSpec(rtt_ns=settings.rtt))),))
        if first is not None:
            results = replace(results, figures=tuple(first(fields, prepared)))
        total = settings.round_count * sum(len(field.entries) for field in fields)
        with Progress("runs", total) as bar:
            for place in range(settings.round_count):
                for run in _round(fields, place, prepared, kind, results, look):
                    why = run.failure or wrong(run)
                    if why and run.subject.startswith("emlio"):
                        raise DatasetError(f"{run.scenario}: {run.subject} must read all records as planned: {why}")
                    results = replace(results, runs=(*results.runs, run))
                    if run.failure is not None:
                        world.tell(f"{run.scenario}: {run.subject} failed: {run.failure.splitlines()[0]}")
                    bar.add(1)
                world.tell(f"round {place + 1} of {settings.round_count} is over")
                write_results(results, settings.out / RESULTS)
    return results


def _kind(fields: Sequence[Field], settings: FieldsSettings, world: World) -> LinkKind:
    if not any(field.over_link for field in fields):
        return LinkKind.REAL
    kind, missing = choose_kind(settings.kind)
    for reason in missing:
        world.tell(f"no link of the kind {reason}")
    return kind


def _root(benchmark: str, settings: FieldsSettings, *, in_memory: bool) -> AbstractContextManager[Path]:
    return memory_root(benchmark, _COPIES * settings.size) if in_memory else data_root(settings.data)


def _round(
    fields: Sequence[Field],
    place: int,
    prepared: Mapping[tuple[str, str], Path],
    kind: LinkKind,
    results: Results,
    look: Look | None,
) -> Iterator[Run]:
    for field in fields:
        contest = field.contest
        for turn, entry in enumerate(rotated(field.entries, place)):
            who = contest.name, entry.system.name
            if not is_worth_while([run for run in results.runs if (run.scenario, run.subject) == who]):
                continue
            run_kind = kind if field.over_link else LinkKind.REAL
            job = Job(
                contest=contest,
                system=entry.system,
                setting=entry.setting,
                prepared=prepared[who],
                spec=LinkSpec(rtt_ns=contest.rtt_ns),
                kind=run_kind,
                round=place,
                place=turn,
                seed=place + 1,
            )
            more = partial(look, contest) if look is not None else None
            yield run_once(job, None, OneMachine(run_kind), more)


# ---- the report -----------------------------------------------------------------------------------------------------

_COLUMNS: Final = (
    (Quantity.FIRST_BATCH, "first batch, s", 1.0),
    (Quantity.RECORDS_RATE, "records/s", 1.0),
    (Quantity.TRAINING_CPU, "training, CPU s", 1.0),
    (Quantity.STORAGE_CPU, "storage, CPU s", 1.0),
    (Quantity.LEFT_BYTES, "on the client's disk, MB", 1e-6),
)


def times_table(
    rows: Sequence[Standing], against: Callable[[Standing], Standing | None], words: str, *, inverse: bool = False
) -> Table:
    """Return the times of a contest, each as a multiple of another in the same round.

    Args:
        rows: the rows of the contest.
        against: returns the row that one is compared with.
        words: heading of that column.
        inverse: whether the other is divided by the row, instead of the row by the other.
    """
    cells: list[tuple[str, ...]] = []
    for row in rows:
        other = against(row)
        pair = (row, other) if not inverse else (other, row)
        upper, lower = pair
        times = None if upper is None or lower is None else same_round_ratio(upper, lower, Quantity.FIRST_EPOCH)
        values = (None if (of := row.of(quantity)) is None else of.scaled(factor) for quantity, _, factor in _COLUMNS)
        cells.append(
            (
                row.entrant.subject,
                text(row.of(Quantity.FIRST_EPOCH)),
                text(times),
                *map(text, values),
                row.exact or (f"failed: {row.failures[0].splitlines()[0]}" if row.failures else "-"),
            )
        )
    header = ("loader", "first epoch, s", words, *(name for _, name, _ in _COLUMNS), "each record once")
    return Table(header=header, rows=tuple(cells))


def fields_parts(
    results: Results, reading: str, tables: Callable[[Sequence[Standing]], Sequence[Table]]
) -> tuple[Part, ...]:
    """Return the report: a part for each contest with the tables of its rows."""
    rows = standings(results)
    links = (f"{name}: the link is not what was asked for: {why}" for name, of in results.links for why in of.missed)
    before = tuple((one.name, number(spread(one.values).median), one.unit) for one in results.figures)
    parts = [Part(text=reading)]
    for contest in results.contests:
        own = [row for row in rows if row.contest == contest]
        if own:
            heading = f"{contest.name[0].upper()}{contest.name[1:]}"
            parts.append(Part(heading=heading, text=f"{contest.words}.", tables=tuple(tables(own))))
    return (
        *parts,
        Part(heading="Before the runs", tables=(Table(header=("", "", ""), rows=before),) if before else ()),
        Part(
            heading="The loaders",
            points=tuple(
                f"{one.subject} ({one.versions}): {one.words}"
                if one.missing is None
                else f"{one.subject} {one.missing}"
                for one in results.entrants
            ),
        ),
        Part(heading="Caveats", points=tuple(links)),
        Part(heading="The machine", tables=(environment_table(results),)),
    )


def draw_fields(results: Results, of: str = Quantity.FIRST_EPOCH, axis: str = "seconds of the first epoch") -> Any:
    """Return a figure with bars for each contest; None if nothing has run."""
    panels: list[tuple[Contest, list[tuple[str, str, Any]]]] = []
    for contest in results.contests:
        bars: list[tuple[str, str, Any]] = []
        for subject in dict.fromkeys(entrant.subject for entrant in results.entrants):
            own = [run for run in results.runs if (run.scenario, run.subject) == (contest.name, subject)]
            values = [run.values[of] for run in own if of in run.values]
            if values:
                bars.append((subject, "emlio" if subject.startswith("emlio") else subject, spread(values)))
        panels += [(contest, bars)] if bars else []
    if not panels:
        return None
    height = sum(0.9 + 0.26 * len(bars) for _, bars in panels)
    figure, axes = blank_figure(8.6, height, rows=len(panels))
    for place, (contest, bars) in enumerate(panels):
        panel = axes[place] if len(panels) > 1 else axes
        draw_bars(panel, bars, axis)
        panel.set_title(contest.name, loc="left", fontsize=9)
    stamp(figure, results)
    return figure
