"""The tables of a race's report.

Covers: the columns and the format of their cells. Pure. Does not cover: the report around them
(emlio_bench.race.report.document).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from emlio.units import format_duration, format_size
from emlio_bench.harness.spread import number, text
from emlio_bench.harness.table import Table
from emlio_bench.link.contract import LinkKind
from emlio_bench.link.measurement.accuracy import LinkReport
from emlio_bench.race.outcome import Entrant, Race
from emlio_bench.race.report.check import Check, Outcome
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.quoted import PAPERS_TABLES, QUOTES
from emlio_bench.race.report.round_trips import Law
from emlio_bench.race.report.standing import DEFAULT, OURS, Standing, streams_of

__all__ = [
    "checks_table",
    "complete_table",
    "contest_table",
    "entrants_table",
    "laws_table",
    "limits_table",
    "links_table",
    "missing_table",
    "paper_table",
    "quotes_table",
]

_GIGA: Final = 1e9

Form = Callable[[float], str]


def checks_table(checks: Sequence[Check]) -> Table:
    """Return the table of all requirements."""
    return Table(
        title="Goals",
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


def links_table(race: Race) -> Table:
    """Return the table of the links' own measurements."""
    rows: list[tuple[str, ...]] = []
    for name, report in race.links:
        of = report.measured
        loads = ", ".join(f"{load.streams}: {load.bits_per_s / _GIGA:.3g}" for load in report.loads)
        rows.append(
            (
                name,
                report.kind.value
                + (f", moved by {report.moved_by}" if report.moved_by else "")
                + (", buffers raised" if report.tuned else ""),
                _asked(report),
                f"{format_duration(of.median)} ({format_duration(of.low)}..{format_duration(of.high)})",
                format_duration(report.own_ns) if report.own_ns else "-",
                loads or "-",
                f"MISSED: {'; '.join(report.objections)}" if report.objections else "ok",
            )
        )
    return Table(
        title="The link, measured first",
        header=(
            "contest",
            "kind",
            "asked",
            "round trip (5th..95th)",
            "delay shortened for the link's own time",
            "Gbit/s by streams",
            "as asked",
        ),
        rows=tuple(rows),
        names=2,
    )


def _asked(report: LinkReport) -> str:
    if report.kind is LinkKind.REAL:
        return "nothing"
    return format_duration(report.rtt_ns) if report.rtt_ns else "0 ms"


_Cell = Callable[[Standing], str]
_Column = tuple[str, _Cell]


def _of(quantity: Quantity, form: Form = number, *, spread: bool = True) -> _Cell:
    return lambda row: text(row.of(quantity), form, spread=spread)


def _table(title: str, rows: Sequence[Standing], columns: Sequence[_Column], *, names: int = 2) -> Table:
    return Table(
        title=title,
        header=tuple(header for header, _ in columns),
        rows=tuple(tuple(cell(row) for _, cell in columns) for row in rows),
        names=names,
        ours=frozenset(number for number, row in enumerate(rows) if row.is_ours),
    )


_WHO: Final[tuple[_Column, ...]] = (
    ("system", lambda row: row.entrant.subject),
    ("setting", lambda row: row.entrant.setting),
)
_EXACT: Final[_Column] = ("exact", lambda row: row.exact or "-")


def contest_table(rows: Sequence[Standing]) -> Table:
    """Return the table of one contest, each system at its best setting and at its defaults."""
    columns: tuple[_Column, ...] = (
        *_WHO,
        ("first epoch, s", _of(Quantity.FIRST_EPOCH)),
        ("later epochs, s", _of(Quantity.LATER_EPOCHS, spread=False)),
        ("first batch, s", _of(Quantity.FIRST_BATCH, spread=False)),
        ("Gbit/s", _of(Quantity.BIT_RATE, _gigabits, spread=False)),
        ("CPU s, training + storage", _both_cpu),
        ("memory", partial(_memory, spread=False)),
        ("left on disk", _of(Quantity.LEFT_BYTES, format_size, spread=False)),
        ("blocks in a batch, of a full shuffle", _mixing),
        _EXACT,
    )
    return _table("Each system at its best setting and at its defaults", rows, columns)


def complete_table(rows: Sequence[Standing]) -> Table:
    """Return the table of one contest with all settings and all quantities."""
    columns: tuple[_Column, ...] = (
        *_WHO,
        ("runs", _runs),
        ("first epoch, s", _of(Quantity.FIRST_EPOCH)),
        ("later epochs, s", _of(Quantity.LATER_EPOCHS)),
        ("first batch, s", _of(Quantity.FIRST_BATCH)),
        ("records/s", _of(Quantity.RECORDS_RATE)),
        ("Gbit/s", _of(Quantity.BIT_RATE, _gigabits)),
        ("waiting", _of(Quantity.WAIT_SHARE, "{:.0%}".format)),
        ("CPU s, training", _of(Quantity.TRAINING_CPU)),
        ("CPU s, storage", _of(Quantity.STORAGE_CPU)),
        ("memory", _memory),
        ("wire / payload", _of(Quantity.WIRE_SHARE)),
        ("left on disk", _of(Quantity.LEFT_BYTES, format_size)),
        ("energy", _energy),
        ("in flight, mean", _of(Quantity.IN_FLIGHT, format_size)),
        ("in flight, most", _of(Quantity.PEAK_IN_FLIGHT, format_size)),
        ("blocks", _of(Quantity.BLOCKS)),
        ("mixes as well", lambda row: _said(row.mixes_as_well)),
        _EXACT,
    )
    return _table("All settings: median (least..most) over rounds", rows, columns)


def limits_table(rows: Sequence[Standing]) -> Table:
    """Return the table of the link's throughput between the runs."""
    title = (
        "The limits: what TCP streams, and sockets that do nothing else, carried over the same link in the same rounds"
    )
    ordered = sorted(rows, key=lambda row: (row.entrant.subject, streams_of(row.entrant.setting)))
    tool, streams = _WHO
    columns = (("tool", tool[1]), ("streams", streams[1]), ("Gbit/s", _of(Quantity.BIT_RATE, _gigabits)))
    return _table(title, ordered, columns)


def entrants_table(entrants: Sequence[Entrant]) -> Table:
    """Return the table of the systems' claims and the meaning of their settings."""
    able = [one for one in entrants if one.missing is None]
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
                _said(one.exact, "not said"),
                one.leaves_on_disk,
                one.versions or "-",
            )
            for one in able
        ),
        names=8,
        ours=frozenset(number for number, one in enumerate(able) if (one.subject, one.setting) == (OURS, DEFAULT)),
    )


def missing_table(entrants: Sequence[Entrant]) -> Table:
    """Return the table of systems that could not run."""
    missing: dict[tuple[str, str], list[str]] = {}
    for one in entrants:
        if one.missing is not None:
            missing.setdefault((one.subject, one.missing), []).append(one.setting)
    return Table(
        title="Systems that could not run",
        header=("system", "settings", "why, and how to get it"),
        rows=tuple((subject, ", ".join(settings), why) for (subject, why), settings in missing.items()),
        names=3,
    )


def quotes_table() -> Table:
    """Return the table of figures published by others."""
    return Table(
        title="Quoted, not measured here: what others published",
        header=("system", "circumstances", "source", "round trip", "records/s", "Gbit/s"),
        rows=tuple(
            (
                quote.system,
                quote.circumstances,
                quote.source,
                "-" if quote.rtt_ns is None else format_duration(quote.rtt_ns),
                number(quote.records_per_s),
                "-" if quote.bits_per_s is None else _gigabits(quote.bits_per_s),
            )
            for quote in QUOTES
        ),
        names=3,
    )


def paper_table() -> Table:
    """Return the table of the paper's baseline."""
    rtts = sorted({rtt_ns for table in PAPERS_TABLES for rtt_ns, _ in table.seconds})
    return Table(
        title="Quoted, not measured here: the paper's baseline, seconds of an epoch by round trip",
        header=("system", "training", *(format_duration(rtt_ns) for rtt_ns in rtts), "round trips nothing overlaps"),
        rows=tuple(
            (
                table.system,
                table.workload,
                *(number(dict(table.seconds)[rtt_ns]) if rtt_ns in dict(table.seconds) else "-" for rtt_ns in rtts),
                number(table.round_trips),
            )
            for table in PAPERS_TABLES
        ),
        names=2,
    )


def laws_table(laws: Sequence[Law]) -> Table:
    """Return the table of the computed laws, N x RTT."""
    return Table(
        title="Computed: an epoch as a constant and N round trips that nothing overlaps",
        header=("system", "setting", "where N is from", "N", "without distance, s", "at 30 ms, s", "at 100 ms, s"),
        rows=tuple(
            (
                law.subject,
                law.setting or "-",
                law.source,
                number(law.round_trips),
                number(law.base_s),
                number(law.seconds(30_000_000)),
                number(law.seconds(100_000_000)),
            )
            for law in laws
        ),
        names=3,
    )


def _gigabits(value: float) -> str:
    return number(value / _GIGA)


def _said(known: bool | None, unknown: str = "-") -> str:
    return unknown if known is None else "yes" if known else "no"


def _both_cpu(row: Standing) -> str:
    training, storage = row.of(Quantity.TRAINING_CPU), row.of(Quantity.STORAGE_CPU)
    if training is None:
        return "-"
    return f"{text(training, spread=False)} + {text(storage, spread=False)}"


def _memory(row: Standing, *, spread: bool = True) -> str:
    peak = row.of(Quantity.PEAK_MEMORY)
    mark = " RSS" if peak is not None and row.memory == "RSS" else ""
    return f"{text(peak, format_size, spread=spread)}{mark}"


def _mixing(row: Standing) -> str:
    blocks = row.of(Quantity.BLOCKS)
    if blocks is None:
        return "-"
    return f"{number(blocks.median)} of {number(row.full_blocks)}" + (", as well" if row.mixes_as_well else "")


def _energy(row: Standing) -> str:
    of = row.of(Quantity.ENERGY)
    return "-" if of is None else f"{text(of)} J, {' and '.join(row.methods)}"


def _runs(row: Standing) -> str:
    """Return the number of runs, with the numbers of cut and failed ones."""
    cut, failed = sum(run.cut for run in row.runs), len([run for run in row.runs if run.failure is not None])
    told = [f"{count} {what}" for count, what in ((cut, "cut"), (failed, "failed")) if count]
    return f"{len(row.runs)}" + (f": {', '.join(told)}" if told else "")
