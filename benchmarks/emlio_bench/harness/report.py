"""The report of a benchmark's results.

Covers: the tables of deliveries and of figures, the environment, warnings about doubtful values.
Pure. Does not cover: statistics (emlio_bench.harness.summary), the forms of a report
(emlio_bench.harness.page).
"""

from collections.abc import Sequence
from typing import Final

from emlio.units import format_size
from emlio_bench.harness.page import Part, text_page
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.spread import Spread, spread
from emlio_bench.harness.subject import LIMITS
from emlio_bench.harness.summary import Row, doubts, summarise
from emlio_bench.harness.table import Table

__all__ = ["environment_table", "label", "missed_bounds", "render", "result_parts"]

_LABELS: Final = {
    "bare": "bare PUSH/PULL pair",
    "iperf3": "iperf3, one stream",
    "paper": "the paper's method, shard order",
    "sockets": "plain TCP sockets (no iperf3)",
}
_ORDERS: Final = {"block": "block order", "global": "global order", "none": "file order", "shard": "shard order"}
_WAYS: Final = {
    "": "verified",
    "keyed": "keys only",
    "rows": "verified, rows",
    "sealed": "sealed",
    "views": "verified, each record sliced",
}
_READING: Final = (
    "Median (least..most). Ratios are of neighbours in the same round; GB are 10^9 bytes of payload; CPU seconds "
    "per GB are of\nthe sending plus the receiving process."
)


def label(subject: str) -> str:
    """Return a subject's display name."""
    if subject in _LABELS:
        return _LABELS[subject]
    name, _, checkout = subject.partition("@")
    ours, _, rest = name.partition("-")
    order, _, way = rest.partition("-")
    if ours != "emlio" or order not in _ORDERS or way not in _WAYS:
        return subject
    return f"EMLIO, {_ORDERS[order]}, {_WAYS[way]}" + (f", {checkout} checkout" if checkout else "")


def render(results: Results) -> str:
    """Return the whole report of a run as text."""
    return text_page(result_parts(results))


def result_parts(results: Results) -> tuple[Part, ...]:
    """Return the whole report of a run. The environment comes first."""
    rows = summarise(results)
    scenarios = dict.fromkeys(row.scenario for row in rows)
    return (
        Part(tables=(environment_table(results),)),
        *(Part(tables=(_scenario_table(rows, scenario),)) for scenario in scenarios),
        Part(text=_READING if rows else ""),
        Part(heading="Caveats", points=doubts(rows)),
        Part(tables=(_figure_table(results.figures),) if results.figures else ()),
        Part(text="\n".join(dict.fromkeys(figure.note for figure in results.figures if figure.note))),
    )


def missed_bounds(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Return the names of the figures that are outside their bounds."""
    return tuple(figure.name for figure in figures if not _keeps(figure))


def _keeps(figure: Figure) -> bool:
    of = spread(figure.values)
    low, high = (of.least, of.most) if figure.every else (of.median, of.median)
    return (figure.at_most is None or high <= figure.at_most) and (figure.at_least is None or low >= figure.at_least)


def environment_table(results: Results) -> Table:
    """Return the table of the environment and the settings."""
    world = results.environment
    pairs = (
        ("begun", results.begun),
        ("processor", f"{world.cpu or 'unknown'}, {world.cores} cores"),
        ("memory", format_size(world.memory_bytes)),
        ("kernel", f"Linux {world.kernel}"),
        ("TCP", f"{world.tcp_congestion_control}, wmem {world.tcp_wmem}, rmem {world.tcp_rmem}"),
        ("EMLIO", f"{world.emlio} at {world.commit or 'an unknown commit'}"),
        ("software", f"{world.python}, pyzmq {world.pyzmq}, libzmq {world.libzmq}, numpy {world.numpy}"),
        ("iperf3", world.iperf3 or "not installed"),
        *results.settings,
    )
    rows = tuple((name, value) for name, value in pairs if value)
    return Table(header=("", ""), rows=rows, names=2)


def _scenario_table(rows: Sequence[Row], scenario: str) -> Table:
    chosen = [row for row in rows if row.scenario == scenario]
    limit = next((row.subject for row in chosen if row.subject in LIMITS), None)
    return Table(
        header=(
            f"{scenario} records",
            "GB/s",
            "records/s",
            f"of {limit}" if limit else "",
            "of bare pair",
            "CPU s/GB",
            "CPU of bare pair",
            "first batch",
            "protected by",
        ),
        rows=tuple(
            (
                label(row.subject),
                _spread(row.bytes_per_s, "{:.2f}", 1e-9),
                f"{row.records_per_s.median:,.0f}" if row.records_per_s else "",
                _spread(row.of_limit, "{:.0f}", 100, " %") if row.of_limit else "",
                _spread(row.of_bare, "{:.0f}", 100, " %") if row.of_bare else "",
                f"{row.sender_s_per_gb.median:.2f} + {row.receiver_s_per_gb.median:.2f}",
                _spread(row.cpu_of_bare, "{:.2f}", 1, " x") if row.cpu_of_bare else "",
                f"{row.first_batch_ms.median:.0f} ms" if row.first_batch_ms else "",
                row.protection,
            )
            for row in chosen
        ),
    )


def _figure_table(figures: Sequence[Figure]) -> Table:
    rows: list[tuple[str, ...]] = []
    for figure in figures:
        of = spread(figure.values)
        bounds = ((">=", figure.at_least), ("<=", figure.at_most))
        bound = ", ".join(f"{sign} {_number(value)}" for sign, value in bounds if value is not None)
        kept = "ok" if _keeps(figure) else "MISSED"
        extremes = f"{_number(of.least)}..{_number(of.most)}"
        rows.append((figure.name, _number(of.median), extremes, figure.unit, bound, kept if bound else ""))
    return Table(header=("", "median", "least..most", "unit", "must be", ""), rows=tuple(rows))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _spread(of: Spread, form: str, factor: float, unit: str = "") -> str:
    median, least, most = (form.format(value * factor) for value in (of.median, of.least, of.most))
    return f"{median}{unit} ({least}..{most})"
