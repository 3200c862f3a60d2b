"""Results as text for people.

Covers: the tables of deliveries and of figures, with warnings about doubtful values. Pure: returns
text. Does not cover: statistics (emlio_bench.harness.summary), printing.
"""

from collections.abc import Sequence
from typing import Final

from emlio.units import format_size
from emlio_bench.harness.environment import Environment
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.subject import LIMITS
from emlio_bench.harness.summary import Row, Spread, doubts, spread, summarise

__all__ = ["align", "label", "missed_bounds", "render"]

_LABELS: Final = {
    "bare": "bare PUSH/PULL pair",
    "iperf3": "iperf3, one stream",
    "paper": "the paper's way, shard order",
    "sockets": "plain TCP sockets (no iperf3)",
}
_ORDERS: Final = {"block": "block order", "global": "global order", "none": "file order", "shard": "shard order"}
_WAYS: Final = {"": "verified", "keyed": "keys only", "sealed": "sealed"}


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
    """Return the whole report of a run."""
    parts = [_world(results.environment)]
    rows = summarise(results)
    if rows:
        parts += [_scenario_table(rows, scenario) for scenario in dict.fromkeys(row.scenario for row in rows)]
        parts.append(
            "Median (least..most). Ratios are of neighbours in the same round; GB are 10^9 bytes of payload; CPU seconds "
            "per GB are of\nthe sending plus the receiving process."
        )
        doubtful = doubts(rows)
        if doubtful:
            parts.append("\n".join(["Do not believe blindly:", *(f"  {doubt}" for doubt in doubtful)]))
    if results.figures:
        parts.append(_figure_table(results.figures))
    return "\n\n".join(parts)


def missed_bounds(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Return the names of the figures that are outside their bounds."""
    return tuple(figure.name for figure in figures if not _keeps(figure))


def _keeps(figure: Figure) -> bool:
    of = spread(figure.values)
    low, high = (of.least, of.most) if figure.every else (of.median, of.median)
    return (figure.at_most is None or high <= figure.at_most) and (figure.at_least is None or low >= figure.at_least)


def _world(world: Environment) -> str:
    first = f"{world.cpu or 'unknown processor'}, {world.cores} cores, {format_size(world.memory_bytes)}, Linux {world.kernel}"
    second = f"{world.python}, pyzmq {world.pyzmq}, libzmq {world.libzmq}, emlio {world.emlio} at {world.commit or '?'}"
    third = f"tcp_wmem {world.tcp_wmem}, congestion control {world.tcp_congestion_control}"
    return "\n".join((first, second, f"{world.iperf3}, {third}" if world.iperf3 else third))


def _scenario_table(rows: Sequence[Row], scenario: str) -> str:
    chosen = [row for row in rows if row.scenario == scenario]
    limit = next((row.subject for row in chosen if row.subject in LIMITS), None)
    table = [
        (
            f"{scenario} records",
            "GB/s",
            "records/s",
            f"of {limit}" if limit else "",
            "of bare pair",
            "CPU s/GB",
            "first batch",
            "protected by",
        )
    ]
    table += [
        (
            label(row.subject),
            _spread(row.bytes_per_s, "{:.2f}", 1e-9),
            f"{row.records_per_s.median:,.0f}" if row.records_per_s else "",
            _spread(row.of_limit, "{:.0f}", 100, " %") if row.of_limit else "",
            _spread(row.of_bare, "{:.0f}", 100, " %") if row.of_bare else "",
            f"{row.sender_s_per_gb.median:.2f} + {row.receiver_s_per_gb.median:.2f}",
            f"{row.first_batch_ms.median:.0f} ms" if row.first_batch_ms else "",
            row.protection,
        )
        for row in chosen
    ]
    return align(table)


def _figure_table(figures: Sequence[Figure]) -> str:
    table = [("", "median", "least..most", "unit", "must be", "")]
    for figure in figures:
        of = spread(figure.values)
        bound = ""
        if figure.at_most is not None:
            bound = f"<= {_number(figure.at_most)}"
        if figure.at_least is not None:
            bound += f">= {_number(figure.at_least)}"
        table.append(
            (
                figure.name,
                _number(of.median),
                f"{_number(of.least)}..{_number(of.most)}",
                figure.unit,
                bound,
                "" if not bound else "ok" if _keeps(figure) else "MISSED",
            )
        )
    notes = dict.fromkeys(figure.note for figure in figures if figure.note)
    return "\n".join([align(table), *(["", *notes] if notes else [])])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _spread(of: Spread, form: str, factor: float, unit: str = "") -> str:
    median, least, most = (form.format(value * factor) for value in (of.median, of.least, of.most))
    return f"{median}{unit} ({least}..{most})"


def align(table: Sequence[tuple[str, ...]]) -> str:
    """Format a table: the first column left-aligned, the others right-aligned, no empty columns."""
    kept = [column for column in range(len(table[0])) if any(row[column] for row in table[1:])]
    widths = [max(len(row[column]) for row in table) for column in kept]
    lines = [
        "  ".join(
            row[column].ljust(width) if not place else row[column].rjust(width)
            for place, (column, width) in enumerate(zip(kept, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join((lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]))
