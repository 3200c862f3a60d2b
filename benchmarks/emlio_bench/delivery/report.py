"""The report of `emlio-bench delivery`: shares of the limits within rounds, doubts, bars."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from emlio_bench.harness.plot import bar_panels
from emlio_bench.harness.report import Part, Table, result_parts
from emlio_bench.harness.results import Results, Run, neighbours
from emlio_bench.harness.scenario import BARE, LIMITS
from emlio_bench.harness.spread import Spread, spread

__all__ = ["cpu_s_per_gb", "delivery_parts", "doubts", "draw_delivery", "label", "share", "speed"]

_LABELS: Final = {
    "bare": "bare PUSH/PULL pair",
    "iperf3": "iperf3, one stream",
    "paper": "the paper's method, shard order",
}
_ORDERS: Final = {"block": "block order", "global": "global order", "none": "file order", "shard": "shard order"}
_WAYS: Final = {
    "": "verified",
    "cold-cache": "cold, through the page cache",
    "cold-direct": "cold, past the page cache",
    "keyed": "keys only",
    "rows": "verified, rows",
    "sealed": "sealed",
    "views": "verified, each record sliced",
}
_READING: Final = (
    "Median (least..most). Ratios are of neighbours in the same round; GB are 10^9 bytes of payload; CPU seconds "
    "per GB are of\nthe sending plus the receiving process."
)
_WIDE: Final = 0.3
"""The width, as a share of its median, above which a ratio is doubtful."""
_FEW_ROUNDS: Final = 5
_SHORT_S: Final = 0.9
_ABOVE_CEILING: Final = 1.1


def label(subject: str) -> str:
    """Return a subject's display name."""
    if subject in _LABELS:
        return _LABELS[subject]
    name, _, checkout = subject.partition("@")
    ours, _, rest = name.partition("-")
    order, _, way = rest.partition("-")
    if ours != "emlio" or order not in _ORDERS or way not in _WAYS:
        return subject
    return f"EMLIO{f' ({checkout})' * bool(checkout)}, {_ORDERS[order]}, {_WAYS[way]}"


def speed(run: Run) -> float:
    """Return payload bytes a second."""
    return run.value("bytes/s")


def cpu_s_per_gb(run: Run) -> float:
    """Return processor seconds of both sides for a gigabyte."""
    return run.value("sender, CPU s/GB") + run.value("receiver, CPU s/GB")


def share(runs: Sequence[Run], subject: str, of: str | None, quantity: Callable[[Run], float]) -> Spread | None:
    """Return a subject's quantity as a share of another's in the same rounds; None for a limit.

    Ratios are taken within a round, so that later changes of the machine's speed do not matter.
    """
    if of is None or subject in (of, *LIMITS):
        return None
    ratios = [quantity(run) / quantity(beside) for run, beside in neighbours(runs, subject, of)]
    return spread(ratios) if ratios else None


def _scenarios(results: Results) -> Iterator[tuple[str, list[Run], list[str]]]:
    """Yield each scenario with its runs and their subjects."""
    for scenario in dict.fromkeys(run.scenario for run in results.runs):
        runs = [run for run in results.runs if run.scenario == scenario]
        yield scenario, runs, list(dict.fromkeys(run.subject for run in runs))


def _limit(subjects: Sequence[str]) -> str | None:
    return next((name for name in subjects if name in LIMITS), None)


def delivery_parts(results: Results) -> tuple[Part, ...]:
    """Return the report. The environment comes first."""
    environment, *more = result_parts(results)
    return (
        environment,
        *(Part(tables=(_table(*of),)) for of in _scenarios(results)),
        Part(text=_READING),
        Part(heading="Caveats", points=doubts(results)),
        *more,
    )


def _table(scenario: str, runs: Sequence[Run], subjects: Sequence[str]) -> Table:
    limit, rows = _limit(subjects), list[tuple[str, ...]]()
    for name in subjects:
        own = [run for run in runs if run.subject == name]

        def text(of: Spread | None, form: str, factor: float = 1, unit: str = "") -> str:
            if of is None:
                return ""
            median, least, most = (form.format(value * factor) for value in (of.median, of.least, of.most))
            return f"{median}{unit} ({least}..{most})"

        def median(quantity: str, form: str, own: Sequence[Run] = own) -> str:
            found = [run.values[quantity] for run in own if quantity in run.values]
            return form.format(spread(found).median) if found else ""

        rows.append(
            (
                label(name),
                text(spread([speed(run) for run in own]), "{:.2f}", 1e-9),
                median("records/s", "{:,.0f}"),
                text(share(runs, name, limit, speed), "{:.0f}", 100, " %"),
                text(share(runs, name, BARE, speed), "{:.0f}", 100, " %"),
                f"{median('sender, CPU s/GB', '{:.2f}')} + {median('receiver, CPU s/GB', '{:.2f}')}",
                text(share(runs, name, BARE, cpu_s_per_gb), "{:.2f}", 1, " x"),
                median("first batch, ms", "{:.0f} ms"),
                ", ".join(dict.fromkeys(run.words["protection"] for run in own if "protection" in run.words)),
            )
        )
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
        rows=tuple(rows),
    )


def doubts(results: Results) -> tuple[str, ...]:
    """Return reasons to doubt the figures, one sentence each."""
    rounds, found = 1 + max((run.round for run in results.runs), default=0), list[str]()
    if rounds < _FEW_ROUNDS:
        found.append(f"only {rounds} round(s): {_FEW_ROUNDS} or more make a median")
    shortest_s = min((run.value("length, s") for run in results.runs), default=_SHORT_S)
    if shortest_s < _SHORT_S:
        found.append(f"the shortest sample took {shortest_s:.2f} s: below {_SHORT_S:g} s chance decides")
    for scenario, runs, subjects in _scenarios(results):
        for name in subjects:
            for other, what in ((_limit(subjects), "the limit"), (BARE, "the bare pair")):
                ratio, who = share(runs, name, other, speed), f"{name}, {scenario}"
                if ratio is not None and ratio.width > _WIDE:
                    found.append(
                        f"{who}: its part of {what} varied from {ratio.least:.0%} to {ratio.most:.0%}: measure longer or on a "
                        "quieter machine"
                    )
                if ratio is not None and ratio.median > _ABOVE_CEILING and name != BARE:
                    found.append(f"{who}: {ratio.median:.0%} of {what}, more than anything built on it can have")
    return tuple(found)


def draw_delivery(results: Results) -> Any:
    """Return the figure: payload a second of each subject, a panel for each scenario."""
    panels = [
        (
            f"{scenario} records",
            "payload, GB/s",
            [
                (label(name), name, spread([speed(run) for run in runs if run.subject == name]).scaled(1e-9))
                for name in subjects
            ],
        )
        for scenario, runs, subjects in _scenarios(results)
    ]
    return bar_panels(results, panels)
