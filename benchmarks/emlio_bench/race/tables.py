"""The tables of a race's report.

Covers: the columns and the format of their cells. Pure. Does not cover: the report around them
(emlio_bench.race.document).
"""

from collections.abc import Callable, Sequence
from typing import Final

from emlio.energy.report.text_table import TextTable
from emlio.units import format_duration, format_size
from emlio_bench.harness.environment import Environment
from emlio_bench.race.censored_range import Extent, number, text
from emlio_bench.race.check import Check, Outcome
from emlio_bench.race.outcome import Entrant, Race
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.round_trips import Law
from emlio_bench.race.standing import Standing, streams_of
from emlio_bench.race.subjects.quoted import PAPERS_TABLES, QUOTES
from emlio_bench.race.verdict_words import figure_of

__all__ = [
    "checks_table",
    "complete_table",
    "contest_table",
    "entrants_table",
    "environment_table",
    "laws_table",
    "limits_table",
    "links_table",
    "missing_table",
    "paper_table",
    "quotes_table",
]

_GIGA: Final = 1e9

Form = Callable[[float], str]


def checks_table(checks: Sequence[Check]) -> TextTable:
    """Return the table of all requirements."""
    return TextTable(
        title="What must hold",
        header=("what must hold", "outcome", "found", "bound", "contest", "why, and what belongs to it"),
        rows=tuple(
            (
                check.words,
                check.outcome.value.upper() if check.outcome is Outcome.MISSED else check.outcome.value,
                figure_of(check),
                check.bound,
                check.contest or "-",
                ". ".join(filter(None, (check.why, check.note))) or "-",
            )
            for check in checks
        ),
        names=6,
    )


def links_table(race: Race) -> TextTable:
    """Return the table of the links' own measurements."""
    rows: list[tuple[str, ...]] = []
    for name, report in race.links:
        of = report.measured
        loads = ", ".join(f"{load.streams}: {load.bits_per_s / _GIGA:.3g}" for load in report.loads)
        rows.append(
            (
                name,
                report.kind.value + (", buffers raised" if report.tuned else ""),
                format_duration(report.rtt_ns) if report.rtt_ns else "0 ms",
                f"{format_duration(of.median)} ({format_duration(of.low)}..{format_duration(of.high)})",
                format_duration(report.own_ns) if report.own_ns else "-",
                loads or "-",
                f"MISSED: {'; '.join(report.missed)}" if report.missed else "ok",
            )
        )
    return TextTable(
        title="The link, measured first",
        header=(
            "contest",
            "kind",
            "asked",
            "round trip (5th..95th)",
            "of it the link's own",
            "Gbit/s by streams",
            "as asked",
        ),
        rows=tuple(rows),
        names=2,
    )


def contest_table(rows: Sequence[Standing]) -> TextTable:
    """Return the table of one contest, each system at its best setting and at its defaults."""
    return TextTable(
        title="Each system at its best setting and at its defaults",
        header=(
            "system",
            "setting",
            "first epoch, s",
            "later epochs, s",
            "first batch, s",
            "Gbit/s",
            "CPU s, training + storage",
            "memory",
            "left on disk",
            "blocks in a batch, of a full shuffle",
            "exact",
        ),
        rows=tuple(
            (
                row.entrant.subject,
                row.entrant.setting,
                text(row.of(Quantity.FIRST_EPOCH)),
                text(row.of(Quantity.LATER_EPOCHS), spread=False),
                text(row.of(Quantity.FIRST_BATCH), spread=False),
                text(row.of(Quantity.BIT_RATE), _gigabits, spread=False),
                _both_cpu(row, spread=False),
                _memory(row, spread=False),
                text(row.of(Quantity.LEFT_BYTES), format_size, spread=False),
                _mixing(row),
                row.exact or "-",
            )
            for row in rows
        ),
        names=2,
    )


def complete_table(rows: Sequence[Standing]) -> TextTable:
    """Return the table of one contest with all settings and all quantities."""
    plain: tuple[tuple[Quantity, Form], ...] = (
        (Quantity.FIRST_EPOCH, number),
        (Quantity.LATER_EPOCHS, number),
        (Quantity.FIRST_BATCH, number),
        (Quantity.RECORDS_RATE, number),
        (Quantity.BIT_RATE, _gigabits),
        (Quantity.WAIT_SHARE, _percent),
        (Quantity.TRAINING_CPU, number),
        (Quantity.STORAGE_CPU, number),
    )
    return TextTable(
        title="All settings: median (least..most) over rounds",
        header=(
            "system",
            "setting",
            "runs",
            "first epoch, s",
            "later epochs, s",
            "first batch, s",
            "records/s",
            "Gbit/s",
            "waiting",
            "CPU s, training",
            "CPU s, storage",
            "memory",
            "wire / payload",
            "left on disk",
            "energy",
            "in flight, mean",
            "in flight, most",
            "blocks",
            "mixes as well",
            "exact",
        ),
        rows=tuple(
            (
                row.entrant.subject,
                row.entrant.setting,
                _runs(row),
                *(text(row.of(quantity), form) for quantity, form in plain),
                _memory(row),
                text(row.of(Quantity.WIRE_SHARE)),
                text(row.of(Quantity.LEFT_BYTES), format_size),
                _energy(row),
                text(row.of(Quantity.IN_FLIGHT), format_size),
                text(row.of(Quantity.PEAK_IN_FLIGHT), format_size),
                text(row.of(Quantity.BLOCKS)),
                {None: "-", True: "yes", False: "no"}[row.mixes_as_well],
                row.exact or "-",
            )
            for row in rows
        ),
        names=2,
    )


def limits_table(rows: Sequence[Standing]) -> TextTable:
    """Return the table of the link's throughput between the runs."""
    ordered = sorted(rows, key=lambda row: (row.entrant.subject, streams_of(row.entrant.setting)))
    return TextTable(
        title="The limits: what TCP streams, and sockets that do nothing else, carried over the same link in the same rounds",
        header=("tool", "streams", "Gbit/s"),
        rows=tuple(
            (row.entrant.subject, row.entrant.setting, text(row.of(Quantity.BIT_RATE), _gigabits)) for row in ordered
        ),
        names=2,
    )


def entrants_table(entrants: Sequence[Entrant]) -> TextTable:
    """Return the table of the systems' claims and the meaning of their settings."""
    return TextTable(
        title="Who took part, by what each says of itself",
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
                {None: "not said", True: "yes", False: "no"}[one.exact],
                one.leaves_on_disk,
                one.versions or "-",
            )
            for one in entrants
            if one.missing is None
        ),
        names=8,
    )


def missing_table(entrants: Sequence[Entrant]) -> TextTable:
    """Return the table of systems that could not run."""
    missing: dict[tuple[str, str], list[str]] = {}
    for one in entrants:
        if one.missing is not None:
            missing.setdefault((one.subject, one.missing), []).append(one.setting)
    return TextTable(
        title="Who could not take part",
        header=("system", "settings", "why, and how to get it"),
        rows=tuple((subject, ", ".join(settings), why) for (subject, why), settings in missing.items()),
        names=3,
    )


def quotes_table() -> TextTable:
    """Return the table of figures published by others."""
    return TextTable(
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


def paper_table() -> TextTable:
    """Return the table of the paper's baseline."""
    rtts = sorted({rtt_ns for table in PAPERS_TABLES for rtt_ns, _ in table.seconds})
    return TextTable(
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


def laws_table(laws: Sequence[Law]) -> TextTable:
    """Return the table of the computed laws, N x RTT."""
    return TextTable(
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


def environment_table(race: Race) -> TextTable:
    """Return the table of the environment and the settings."""
    world: Environment = race.environment
    pairs = (
        ("begun", race.begun),
        ("processor", f"{world.cpu or 'unknown'}, {world.cores} cores"),
        ("memory", format_size(world.memory_bytes)),
        ("kernel", f"Linux {world.kernel}"),
        ("TCP", f"{world.tcp_congestion_control}, wmem {world.tcp_wmem}, rmem {world.tcp_rmem}"),
        ("EMLIO", f"{world.emlio} at {world.commit or 'an unknown commit'}"),
        ("software", f"{world.python}, pyzmq {world.pyzmq}, libzmq {world.libzmq}, numpy {world.numpy}"),
        ("iperf3", world.iperf3 or "not installed"),
        *race.settings,
    )
    return TextTable(title="Where it ran, and what it was told", header=("", ""), rows=pairs, names=2)


def _gigabits(value: float) -> str:
    return number(value / _GIGA)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _both_cpu(row: Standing, *, spread: bool = True) -> str:
    training, storage = row.of(Quantity.TRAINING_CPU), row.of(Quantity.STORAGE_CPU)
    if training is None:
        return "-"
    return f"{text(training, spread=spread)} + {text(storage, spread=spread)}"


def _memory(row: Standing, *, spread: bool = True) -> str:
    peak: Extent | None = row.of(Quantity.PEAK_MEMORY)
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
