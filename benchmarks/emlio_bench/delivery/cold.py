"""`emlio-bench delivery --cold`: data that are not in the page cache, read through it and past it in turns."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from emlio.progress import Progress
from emlio_bench.delivery.report import cpu_s_per_gb, label, speed
from emlio_bench.harness.data import data_root, make_data
from emlio_bench.harness.results import Figure, Results, Run, figure, neighbours, ratio_values, results_of
from emlio_bench.harness.rounds import run_rounds
from emlio_bench.harness.scenario import Scenario, Window
from emlio_bench.subjects.cold import Cold

__all__ = ["measure_cold"]

_WAYS: Final = ("cache", "direct")
_MOST_NS: Final = 120_000_000_000
_WARM_UP: Final = 20
_SAMPLE: Final = 1.2
"""A window lies inside one epoch: a second one would find the data in the cache."""


def measure_cold(
    scenarios: Sequence[Scenario], orders: Sequence[str], *, rounds: int, data: Path | None, told: dict[str, object]
) -> Results:
    """Measure both ways on each scenario.

    Args:
        scenarios: the datasets.
        orders: the loader's orders.
        rounds: one sample of each way and order in each.
        data: the folder for the datasets, on the disk to measure; None for a temporary one.
        told: the settings, for the results.
    """
    runs: list[Run] = []
    figures: list[Figure] = []
    with data_root(data) as root:
        for scenario in scenarios:
            directory = make_data(scenario.data, root, progress=False)
            subjects = [Cold(order=order, io=io) for order in orders for io in _WAYS]
            payload_bytes = scenario.data.payload_bytes
            window = Window(
                warm_up_bytes=payload_bytes // _WARM_UP,
                sample_bytes=int(payload_bytes / _SAMPLE),
                least_ns=1,
                most_ns=_MOST_NS,
            )
            with Progress(f"{scenario.name} records, cold", rounds * len(subjects)) as bar:
                for run in run_rounds(scenario, directory, subjects, rounds=rounds, window=window):
                    runs.append(run)
                    bar.add(1)
            for subject in subjects:
                of = f"{scenario.name} records, {label(subject.name)}"
                figures += [
                    figure(f"data in memory before, {of}", "share", subject.resident, "Told by mincore."),
                    figure(
                        f"read from the disk / delivered, {of}",
                        "",
                        subject.disk_reads,
                        "By /proc/PID/io of the daemon, which reads some messages ahead of what is delivered.",
                    ),
                ]
    return results_of("delivery", told, (*figures, *_ratios(runs, orders)), runs, iperf=None)


def _ratios(runs: Sequence[Run], orders: Sequence[str]) -> Iterator[Figure]:
    """Yield the ratios of reading past the page cache to reading through it, within rounds."""
    for scenario in dict.fromkeys(run.scenario for run in runs):
        own = [run for run in runs if run.scenario == scenario]
        for order in orders:
            cache, direct = (Cold(order=order, io=io).name for io in _WAYS)
            pairs = neighbours(own, direct, cache)
            for words, of in (("throughput", speed), ("CPU of a byte", cpu_s_per_gb)):
                ratios = ratio_values(map(of, (this for this, _ in pairs)), map(of, (other for _, other in pairs)))
                yield figure(f"{words}, direct / cache, {scenario} records, {order} order", "", ratios)
