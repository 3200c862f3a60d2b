"""The report of `emlio-bench dial`: DIAL's Tables II and III and Figure 3, ours beside what it prints."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from emlio_bench.dial.patterns import KERNELS, PATTERNS
from emlio_bench.harness.plot import bar_panels
from emlio_bench.harness.report import Part, Table, result_parts
from emlio_bench.harness.results import Figure, Results, Run, figure, neighbours, ratio_values
from emlio_bench.harness.spread import Spread, spread, text

__all__ = ["CPU", "GRID", "LOADER", "OPTIMUM", "OVERHEADS", "SPEED", "dial_figures", "dial_parts", "draw_dial"]

SPEED: Final = "bytes/s"
CPU: Final = "CPU s/GB"
GRID: Final = "grid"
OPTIMUM: Final = "optimum"
LOADER: Final = "loader, "
_OTHERS: Final = ("default", "Lustre's", "small", "DIAL", "ours")
_TUNED: Final = ("DIAL", "ours")
_GREATEST: Final = 1.75
"""The greatest gain that DIAL prints of Figure 3; it names no others."""

OVERHEADS: Final = ("snapshot, ms", "inference, ms", "end to end, ms")
_PRINTED: Final[Mapping[str, tuple[float, float, float]]] = {
    "read": (0.33, 10.06, 24.64),
    "write": (0.85, 13.51, 28.82),
}
_READING: Final = (
    "Theirs: as printed, on a Lustre cluster of ten hosts. Ours: this disk, by emlio.aio, one process. Compare the ratios to "
    "the optimum, not the MB/s (10^6 bytes). Optimum: the best setting of the grid, run again in turns with the others. "
    "'default' has blocks of 1 MiB at a depth of 32, 'Lustre's' 1 MiB at 8. 'DIAL' (its algorithm as printed) and 'ours' begin "
    "with 'small', 64 KiB at 2; the time until they have found something better counts. Median (least..most); ratios are of "
    "neighbours in the same round."
)


def dial_figures(runs: Sequence[Run]) -> list[Figure]:
    """Return the ratios to the optimum, and how many runs failed."""
    found: list[Figure] = []
    for name in _TUNED:
        ratios = [value for scenario in PATTERNS for value in _ratios(runs, scenario, name, OPTIMUM)]
        if ratios:
            found.append(figure(f"{name} / optimum, all patterns", "", ratios))
    failed = sum(run.failure is not None for run in runs)
    return [*found, figure("runs that failed", "", [failed], at_most=0)]


def dial_parts(results: Results) -> tuple[Part, ...]:
    """Return the report. The environment comes first."""
    environment, *more = result_parts(results)
    runs = results.runs
    failures = tuple(f"{run.scenario}: {run.subject}, round {run.round}: {run.failure}" for run in runs if run.failure)
    tables = (_second(runs), _gains(runs), _loaders(runs), _third(runs))
    return (
        environment,
        Part(text=_READING if runs else "", tables=tuple(table for table in tables if table.rows)),
        Part(heading="Failed", points=failures),
        *more[:1],
    )


def _of(runs: Sequence[Run], scenario: str, subject: str) -> list[Run]:
    return [run for run in runs if (run.scenario, run.subject) == (scenario, subject) and run.failure is None]


def _speed(runs: Sequence[Run], scenario: str, subject: str) -> Spread | None:
    own = _of(runs, scenario, subject)
    return spread([run.value(SPEED) for run in own]).scaled(1e-6) if own else None


def _ratios(runs: Sequence[Run], scenario: str, of: str, to: str) -> tuple[float, ...]:
    own = [*_of(runs, scenario, of), *_of(runs, scenario, to)]
    pairs = neighbours(own, of, to)
    return ratio_values(*([pair[side].value(SPEED) for pair in pairs] for side in (0, 1)))


def _ratio(runs: Sequence[Run], scenario: str, of: str, to: str) -> str:
    found = _ratios(runs, scenario, of, to)
    return text(spread(found)) if found else "-"


def _last(runs: Sequence[Run], scenario: str, subject: str) -> str:
    return ", ".join(dict.fromkeys(run.words["setting"] for run in _of(runs, scenario, subject)))


def _second(runs: Sequence[Run]) -> Table:
    rows = [
        (
            name,
            *(f"{value:g}" for value in pattern.printed),
            f"{pattern.printed[1] / pattern.printed[0]:.3f}",
            text(_speed(runs, name, OPTIMUM)),
            _last(runs, name, OPTIMUM),
            *(_ratio(runs, name, other, OPTIMUM) for other in _OTHERS),
            *(_last(runs, name, tuned) for tuned in _TUNED),
        )
        for name, pattern in PATTERNS.items()
        if pattern.printed is not None and _of(runs, name, OPTIMUM)
    ]
    header = ("pattern", "their optimum, MB/s", "their DIAL", "ratio", "our optimum, MB/s", "setting")
    after = (*(f"{name} / optimum" for name in _OTHERS), *(f"{name} ended with" for name in _TUNED))
    return Table(title="Table II", header=(*header, *after), rows=tuple(rows))


def _gains(runs: Sequence[Run]) -> Table:
    rows = [
        (
            name,
            f"up to {_GREATEST:g}",
            text(_speed(runs, name, "small")),
            text(_speed(runs, name, "default")),
            *(_ratio(runs, name, of, to) for to in ("small", "default") for of in (OPTIMUM, *_TUNED)),
        )
        for name in KERNELS
        if _of(runs, name, OPTIMUM)
    ]
    ratios = (f"{of} / {to}" for to in ("small", "default") for of in (OPTIMUM, *_TUNED))
    header = ("kernel", "their gain", "small, MB/s", "default, MB/s", *ratios)
    return Table(title="Figure 3: DLIO's kernels by emlio.aio", header=header, rows=tuple(rows))


def _loaders(runs: Sequence[Run]) -> Table:
    rows = [
        (
            run.scenario.removeprefix(LOADER),
            run.subject,
            text(_speed(runs, run.scenario, run.subject)),
            _ratio(runs, run.scenario, run.subject, "the paper's"),
        )
        for run in {(run.scenario, run.subject): run for run in runs if run.scenario.startswith(LOADER)}.values()
    ]
    header = ("kernel", "loader's settings", "MB/s", "/ the paper's")
    return Table(title="Figure 3: DLIO's kernels by the loader", header=header, rows=tuple(rows), names=2)


def _third(runs: Sequence[Run]) -> Table:
    rows = [
        (
            run.subject,
            *(
                cell
                for name, theirs in zip(OVERHEADS, _PRINTED[run.subject], strict=True)
                for cell in (f"{theirs:g}", f"{run.value(name):.2f}")
            ),
        )
        for run in runs
        if run.subject in _PRINTED and OVERHEADS[0] in run.values
    ]
    header = ("", *(f"{name}, {side}" for name in OVERHEADS for side in ("theirs", "ours")))
    return Table(title="Table III", header=header, rows=tuple(rows))


def draw_dial(results: Results) -> Any:
    """Return the figure: MB/s of each contender, a panel for each pattern."""
    panels = [
        (
            name,
            "MB/s",
            [
                (subject, subject, found)
                for subject in (OPTIMUM, *_OTHERS)
                if (found := _speed(results.runs, name, subject)) is not None
            ],
        )
        for name in PATTERNS
        if _of(results.runs, name, OPTIMUM)
    ]
    return bar_panels(results, panels)
