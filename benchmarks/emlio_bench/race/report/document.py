"""The report of a race: its parts and its tables."""

from collections.abc import Callable, Sequence
from typing import Final

from emlio.units import format_duration, format_size
from emlio_bench.harness.contest import Contest, Entrant
from emlio_bench.harness.report import Part, Table, environment_table
from emlio_bench.harness.results import Results
from emlio_bench.harness.spread import number, text
from emlio_bench.link.accuracy import LinkReport
from emlio_bench.link.contract import LinkKind
from emlio_bench.race.quantity import BYTES, UNITS, Quantity
from emlio_bench.race.report.check import Check, Outcome
from emlio_bench.race.report.standing import Standing, entrants_of, our_row, same_round_ratio, standings
from emlio_bench.race.report.verdict import first_paragraph, verdict

__all__ = ["checks_part", "closing_parts", "race_doubts", "race_parts"]

_READING: Final = (
    "Epochs count from before a loader's constructor, imports done, to the last batch. Figures are medians over rounds, in "
    "which all take their turn. '>' and '<' mark runs that were cut at their contest's limit: the truth lies beyond. '-' is "
    "not known. Ratios are of neighbours in the same round."
)
_WIDE: Final = 0.3
_FEW_ROUNDS: Final = 3
_GIGA: Final = 1e9


def race_parts(race: Results) -> tuple[Part, ...]:
    """Return the parts of the report, in their order."""
    rows, checks = standings(race), verdict(race)
    return (
        Part(text=first_paragraph(race, checks)),
        checks_part("Goals", checks),
        *(_contest_part(contest, own) for contest in race.contests if (own := _of(rows, contest))),
        *closing_parts(race),
    )


def closing_parts(race: Results) -> tuple[Part, ...]:
    """Return the parts that every report of runs of systems ends with."""
    entrants = entrants_of(race)
    missing = tuple(dict.fromkeys(f"{one.subject}: {one.missing}" for one in entrants if one.missing is not None))
    links = dict(race.links)
    return (
        Part(heading="The link, measured first", tables=(_links_table(links),) if links else ()),
        Part(heading="Caveats", points=race_doubts(race)),
        Part(heading="Systems that could not run", points=missing),
        Part(heading="Systems, by their own description", tables=(_entrants_table(entrants),)),
        Part(heading="Machine and settings", tables=(environment_table(race),)),
    )


def checks_part(heading: str, checks: Sequence[Check]) -> Part:
    """Return the table of goals or claims."""
    table = Table(
        title=heading,
        header=("goal", "outcome", "found", "bound", "contest", "reason and notes"),
        rows=tuple(
            (
                check.required.words,
                check.outcome.value.upper() if check.outcome is Outcome.MISSED else check.outcome.value,
                check.found,
                check.required.bound,
                check.contest or "-",
                ". ".join(filter(None, (check.why, check.note))) or "-",
            )
            for check in checks
        ),
        names=6,
    )
    return Part(heading=heading, tables=(table,))


def _of(rows: Sequence[Standing], contest: Contest) -> list[Standing]:
    return sorted((row for row in rows if row.contest == contest), key=lambda row: (not row.is_ours, row.order))


# ---- a contest ------------------------------------------------------------------------------------------------------


_Cell = Callable[[Standing], str]


def _cell(quantity: Quantity) -> _Cell:
    form = format_size if quantity in BYTES else number
    return lambda row: text(row.of(quantity), form)


def _gigabits(row: Standing) -> str:
    return text(row.of(Quantity.BIT_RATE), lambda value: number(value / _GIGA))


def _mixing(row: Standing) -> str:
    blocks = row.of(Quantity.BLOCKS)
    if blocks is None:
        return "-"
    return f"{number(blocks.median)} of {number(row.full_blocks)}" + (", as well" if row.mixes_as_well else "")


def _runs(row: Standing) -> str:
    cut, failed = sum(run.cut for run in row.runs), len([run for run in row.runs if run.failure is not None])
    told = [f"{count} {what}" for count, what in ((cut, "cut"), (failed, "failed")) if count]
    return f"{len(row.runs)}" + (f": {', '.join(told)}" if told else "")


_COLUMNS: Final[tuple[tuple[str, _Cell], ...]] = (
    ("system", lambda row: row.entrant.subject),
    ("setting", lambda row: row.entrant.setting),
    ("runs", _runs),
    *(
        (f"{quantity.value}{f', {UNITS[quantity]}' if UNITS.get(quantity, 'B') != 'B' else ''}", _cell(quantity))
        for quantity in (Quantity.FIRST_EPOCH, Quantity.LATER_EPOCHS, Quantity.FIRST_BATCH)
    ),
    ("Gbit/s", _gigabits),
    ("CPU s, training", _cell(Quantity.TRAINING_CPU)),
    ("CPU s, storage", _cell(Quantity.STORAGE_CPU)),
    ("memory", lambda row: f"{_cell(Quantity.PEAK_MEMORY)(row)} {row.told('memory')}".rstrip()),
    ("wire / payload", _cell(Quantity.WIRE_SHARE)),
    ("left on disk", _cell(Quantity.LEFT_BYTES)),
    ("in flight, mean", _cell(Quantity.IN_FLIGHT)),
    ("in flight, most", _cell(Quantity.PEAK_IN_FLIGHT)),
    ("blocks in a batch, of a full shuffle", _mixing),
    ("exact", lambda row: row.exact or "-"),
)


def _contest_part(contest: Contest, rows: Sequence[Standing]) -> Part:
    systems = [row for row in rows if row.entrant.family != "limit"]
    bounds = [row for row in rows if row.entrant.family == "limit"]
    words = contest.words.rstrip(".")
    epochs = f"{contest.epochs} epoch{'s' if contest.epochs > 1 else ''}"
    tables = [
        Table(
            title="Every system at every setting: median (least..most) over rounds",
            header=tuple(header for header, _ in _COLUMNS),
            rows=tuple(tuple(cell(row) for _, cell in _COLUMNS) for row in systems),
            names=2,
        )
    ]
    if any(row.of(Quantity.ENERGY) for row in systems):
        tables.append(_energy_table(systems, our_row(rows, contest)))
    if bounds:
        tables.append(
            Table(
                title="The limits: what TCP streams, and sockets that do nothing else, carried in the same rounds",
                header=("tool", "streams", "Gbit/s"),
                rows=tuple((*row.who, _gigabits(row)) for row in sorted(bounds, key=lambda row: row.who)),
                names=2,
            )
        )
    return Part(
        heading=contest.name,
        text=f"{words[:1].upper()}{words[1:]}: {contest.corpus.text}, batches of {contest.batch}, {epochs}; "
        f"epochs are cut at {contest.limit_ns / 1e9:g} s. {_READING}",
        tables=tuple(tables),
    )


def _energy_table(rows: Sequence[Standing], ours: Standing | None) -> Table:
    quantities = (
        Quantity.ENERGY,
        Quantity.REST_ENERGY,
        Quantity.COMPUTE_ENERGY,
        Quantity.STORAGE_ENERGY,
        Quantity.STEP_ENERGY,
        Quantity.WAIT_ENERGY,
    )
    known = [row for row in rows if row.of(Quantity.ENERGY) is not None]
    times = [None if ours is None else same_round_ratio(row, ours, Quantity.ENERGY) for row in known]
    return Table(
        title="Joules of an epoch",
        header=("system", "setting", *(quantity.value for quantity in quantities), "times ours", "method"),
        rows=tuple(
            (*row.who, *(_cell(quantity)(row) for quantity in quantities), text(of), row.told("energy"))
            for row, of in zip(known, times, strict=True)
        ),
        names=2,
    )


# ---- what all share ---------------------------------------------------------------------------------------------------


def _links_table(links: dict[str, LinkReport]) -> Table:
    return Table(
        title="The link, measured first",
        header=("contest", "kind", "asked", "round trip (5th..95th)", "own time", "Gbit/s by streams", "as asked"),
        rows=tuple(
            (
                name,
                f"{report.kind.value}, moved by {report.moved_by}" + (", buffers raised" if report.tuned else ""),
                "nothing" if report.kind is LinkKind.REAL else _rtt(report.rtt_ns),
                f"{_rtt(report.measured.median)} ({_rtt(report.measured.low)}..{_rtt(report.measured.high)})",
                _rtt(report.own_ns) if report.own_ns else "-",
                ", ".join(f"{load.streams}: {load.bits_per_s / _GIGA:.3g}" for load in report.loads) or "-",
                f"MISSED: {'; '.join(report.missed)}" if report.missed else "ok",
            )
            for name, report in links.items()
        ),
        names=2,
    )


def _rtt(rtt_ns: int) -> str:
    return format_duration(rtt_ns) if rtt_ns else "0 ms"


def _entrants_table(entrants: Sequence[Entrant]) -> Table:
    exact = {None: "not said", True: "yes", False: "no"}
    return Table(
        title="Systems, by their own description",
        header=(
            "system",
            "setting",
            "what it means",
            "data come as",
            "shuffles",
            "exact",
            "leaves on disk",
            "versions",
        ),
        rows=tuple(
            (
                one.subject,
                one.setting,
                one.words,
                one.family,
                one.shuffles,
                exact[one.exact],
                one.leaves_on_disk,
                one.versions or "-",
            )
            for one in entrants
            if one.missing is None
        ),
        names=8,
    )


# ---- doubts -----------------------------------------------------------------------------------------------------------


def race_doubts(race: Results) -> tuple[str, ...]:
    """Return reasons to doubt figures, one sentence each."""
    rows = standings(race)
    found = [f"{name}: the link is not what was asked for: {why}" for name, of in race.links for why in of.missed]
    if (race.environment.commit or "").endswith("+"):
        found.append(f"files differed from commit {race.environment.commit}")
    # A cut entrant runs only once, since another run would give the same bound.
    rounds = [len({run.round for run in row.runs}) for row in rows if not any(run.cut for run in row.runs)]
    if rounds and min(rounds) < _FEW_ROUNDS:
        few = sum(count < _FEW_ROUNDS for count in rounds)
        found.append(
            f"only {min(rounds)} round(s) for {few} of {len(rounds)} rows: {_FEW_ROUNDS} or more make a median"
        )
    for row in rows:
        name = f"{row.contest.name}, {row.entrant.subject} ({row.entrant.setting})"
        failed = sum(run.failure is not None for run in row.runs)
        if failed:
            found.append(f"{name}: {failed} of {len(row.runs)} runs failed: {'; '.join(row.failures)}")
        if row.is_wrong:
            found.append(f"{name}: records lost or repeated ({row.exact}); these runs decide no claim")
        quantity = Quantity.BIT_RATE if row.entrant.family == "limit" else Quantity.FIRST_EPOCH
        of = row.of(quantity)
        if of is not None and not of.beyond and of.width > _WIDE:
            found.append(f"{name}: its {quantity} varied by {of.width:.0%} of the median: measure on a quieter machine")
    for contest in race.contests:
        dropped = sum(
            run.values[Quantity.DROPPED].value
            for run in race.runs
            if run.scenario == contest.name and Quantity.DROPPED in run.values
        )
        if dropped:
            found.append(f"{contest.name}: the link dropped {dropped:,.0f} packets that it should not have")
    estimates = dict.fromkeys(run.words["energy"] for run in race.runs if "estimate" in run.words.get("energy", ""))
    found += [f"energy: {method}" for method in estimates]
    if any(contest.step_ns for contest in race.contests):
        found.append("steps are pauses of a stated length, no computation")
    if race.no_energy:
        found.append(f"energy was not recorded: {race.no_energy}")
    return tuple(found)
