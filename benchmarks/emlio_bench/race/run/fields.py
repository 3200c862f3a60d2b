"""Benchmarks of a few loaders at the same work in one or more contests, with a report by contest."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio.units import format_size
from emlio_bench.harness.command import World
from emlio_bench.harness.data import data_root, memory_root
from emlio_bench.harness.options import byte_size, count, duration, flag, folder
from emlio_bench.harness.plot import bar_panels
from emlio_bench.harness.report import Part, Table, environment_table
from emlio_bench.harness.results import Figure, Results, Run
from emlio_bench.harness.spread import Spread, number, spread, text
from emlio_bench.link.choice import choose_kind
from emlio_bench.link.contract import LinkKind
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.standing import Standing, same_round_ratio, standings
from emlio_bench.race.run.kept import KeptResults
from emlio_bench.race.run.measure import Look
from emlio_bench.race.run.one_machine import OneMachine
from emlio_bench.race.run.settings import SystemsSettings
from emlio_bench.race.run.turns import Field, Turns

__all__ = ["FieldsSettings", "draw_fields", "fields_parts", "run_fields", "times_table"]

_COPIES: Final = 10
"""Times the payload that all formats together may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldsSettings(SystemsSettings):
    """The options of such a benchmark."""

    size: int = byte_size("600MB", "about the payload of an epoch")
    rtt: int = duration("30ms", "round trip of the link")
    rounds: int = count(6, "rounds, in each of which everything is read once")
    limit: int = duration("60s", "time limit of an epoch; a longer one is cut and counts as longer than that")
    tiny: bool = flag("a few records and one round: shows that all works, measures nothing")
    data: Path | None = folder(
        "keep the datasets in this folder and use what is there (default: a temporary one in /dev/shm, in memory)"
    )
    out: Path

    @property
    def round_count(self) -> int:
        """Number of rounds."""
        return 1 if self.tiny else self.rounds

    def records(self, record_bytes: int, tiny: int) -> int:
        """Return how many records have the payload; `tiny` at most where all is to be tiny."""
        wanted = max(self.size // record_bytes, 1)
        return min(wanted, tiny) if self.tiny else wanted


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
    """Run all rounds; results are kept after each run.

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
    far = any(field.over_link for field in fields)
    kind = choose_kind(settings.kind, world.tell) if far else LinkKind.REAL
    in_memory = settings.data is None and not settings.tiny
    place = "in memory" if in_memory else "in a folder, read into the page cache before each run"
    kept = KeptResults(
        settings.out,
        benchmark,
        (
            *((name, str(value)) for name, value in told.items()),
            ("payload", format_size(settings.size)),
            ("rtt", f"{settings.rtt / 1e6:g} ms"),
            ("rounds", str(settings.round_count)),
            ("link", str(kind)),
            ("data", place),
            ("limit", f"{settings.limit / 1e9:g} s"),
            *([("tiny", "true")] if settings.tiny else []),
        ),
        (field.contest for field in fields),
        [one for field in fields for one in (*(entry.entrant for entry in field.entries), *field.unable)],
    )
    with memory_root(benchmark, _COPIES * settings.size) if in_memory else data_root(settings.data) as forms:
        turns = Turns(kept, OneMachine(kind), world.tell, look=look, wrong=wrong)
        left = turns.prepare(fields, forms, settings.round_count, measure=not settings.tiny)
        if first is not None and not kept.results.figures:
            kept.add(figures=first(left, turns.prepared))
        turns.hold(left, settings.round_count)
    return kept.results


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
        upper, lower = (other, row) if inverse else (row, other)
        times = None if upper is None or lower is None else same_round_ratio(upper, lower, Quantity.FIRST_EPOCH)
        values = (None if (of := row.of(quantity)) is None else of.scaled(factor) for quantity, _, factor in _COLUMNS)
        exact = row.exact or (f"failed: {row.failures[0].splitlines()[0]}" if row.failures else "-")
        cells.append((row.entrant.subject, text(row.of(Quantity.FIRST_EPOCH)), text(times), *map(text, values), exact))
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
    panels: list[tuple[str, str, list[tuple[str, str, Spread]]]] = []
    for contest in results.contests:
        own = [run for run in results.runs if run.scenario == contest.name and of in run.values]
        bars = [
            (name, "emlio" if name.startswith("emlio") else name, spread(values))
            for name in dict.fromkeys(entrant.subject for entrant in results.entrants)
            if (values := [run.values[of] for run in own if run.subject == name])
        ]
        panels += [(f"{contest.name}: {contest.words}", axis, bars)] if bars else []
    return bar_panels(results, panels)
