"""Figures, results and reasons for doubt, in the words of all experiments."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from emlio.units import format_duration
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import Figure, Results, Run

__all__ = ["MIB", "by_name", "figure", "ratio_values", "results_of", "rtt_text"]

MIB = 1 << 20


def figure(
    name: str,
    unit: str,
    values: Iterable[float],
    note: str = "",
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    every: bool = False,
) -> Figure:
    """Return a figure. See `Figure`."""
    return Figure(
        name=name, unit=unit, values=tuple(values), at_most=at_most, at_least=at_least, every=every, note=note
    )


def ratio_values(ours: Iterable[float], theirs: Iterable[float]) -> tuple[float, ...]:
    """Return the ratios of values that were measured one after the other; there must be as many."""
    return tuple(one / other for one, other in zip(ours, theirs, strict=True))


def by_name(results: Results) -> dict[str, Figure]:
    """Return the figures by name."""
    return {one.name: one for one in results.figures}


def rtt_text(rtt_ns: int) -> str:
    """Return a round trip for people; 0 ms for none."""
    return format_duration(rtt_ns) if rtt_ns else "0 ms"


def results_of(
    benchmark: str,
    settings: Mapping[str, object],
    figures: Iterable[Figure],
    runs: Sequence[Run] = (),
    *,
    iperf: str | None = None,
) -> Results:
    """Return the results of a run in this environment.

    Args:
        benchmark: name of the benchmark.
        settings: settings of the run. Booleans become true or false, several values are joined by
            commas.
        figures: figures of the run.
        runs: samples of the run.
        iperf: path of iperf3, if it was used.
    """
    told = tuple((name, _text(value)) for name, value in settings.items())
    return Results(
        benchmark=benchmark,
        environment=read_environment(iperf),
        settings=told,
        runs=tuple(runs),
        figures=tuple(figures),
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value)))
    return str(value)
