"""`emlio-bench delivery`: the share of the machine's throughput that a training process gets."""

from dataclasses import replace
from typing import Final

from emlio.progress import Progress
from emlio_bench.delivery.plot import draw_delivery
from emlio_bench.delivery.protection_cost import cipher_speeds, protection_figures, sealing_figures
from emlio_bench.harness.command import Command
from emlio_bench.harness.data import data_root, locked_data
from emlio_bench.harness.figures import figure, results_of
from emlio_bench.harness.protected import WAYS
from emlio_bench.harness.results import Figure, Results, Run
from emlio_bench.harness.runner import run_rounds
from emlio_bench.harness.scenario import QUICK_WINDOW, Scenario, Window, delivery_scenario
from emlio_bench.harness.settings import DeliverySettings
from emlio_bench.harness.subject import Subject
from emlio_bench.link.choice import link_of
from emlio_bench.link.contract import Link
from emlio_bench.link.iperf import find_iperf
from emlio_bench.subjects.bare import Bare
from emlio_bench.subjects.iperf import Iperf
from emlio_bench.subjects.loader import Loader
from emlio_bench.subjects.paper import Paper

__all__ = ["COMMAND", "make_subjects", "run_delivery"]

_SMALL_RECORD: Final = 50_000
_QUICK_BYTES: Final = 16_000_000
_LONG_NS: Final = 60_000_000_000
"""The longest sample over a link: 3 GB at 0.4 Gbit/s."""


def make_subjects(settings: DeliverySettings, iperf: str | None, link: Link | None = None) -> list[Subject]:
    """Return the requested subjects in the order of the settings.

    Args:
        settings: settings of the command.
        iperf: path of iperf3, or None if it is not installed.
        link: link for EMLIO's subjects; None for loopback.
    """
    subjects: list[Subject] = []
    for word in settings.subjects:
        match word:
            case "limit":
                subjects += [Iperf(program=iperf)] if iperf is not None else []
            case "bare":
                subjects.append(Bare())
            case "emlio" | "rows" | "views" | "sealed" | "keyed":
                way = word if word in WAYS else ""
                form = word if word in ("rows", "views") else ""
                subjects += [Loader(order=order, way=way, form=form, link=link) for order in settings.orders]
            case _:
                subjects.append(Paper())
    return subjects


def _scenarios(settings: DeliverySettings) -> list[Scenario]:
    found = [
        delivery_scenario(
            size, _QUICK_BYTES if settings.quick else 1_000_000_000 if size < _SMALL_RECORD else 2_000_000_000
        )
        for size in settings.sizes
    ]
    return [replace(scenario, rtt_ns=rtt_ns) for rtt_ns in settings.rtts or (None,) for scenario in found]


def _window(settings: DeliverySettings) -> Window:
    if settings.quick:
        return QUICK_WINDOW
    return Window(sample_bytes=settings.bytes, **({"most_ns": _LONG_NS} if settings.rtts else {}))


def _held_text(refused: str) -> str:
    if refused:
        return f"The data were read before the first sample and not locked in memory: {refused}."
    return "The data are locked in memory; the share of their pages there is counted before and after each sample."


def run_delivery(settings: DeliverySettings) -> Results:
    """Measure all requested subjects."""
    iperf = find_iperf()
    names = [subject.name for subject in make_subjects(settings, iperf)]
    window = _window(settings)
    runs: list[Run] = []
    resident: list[Figure] = []
    speeds = cipher_speeds(1 if settings.quick else settings.repeats) if "sealed" in settings.subjects else ()
    with data_root(settings.data) as root:
        for scenario in _scenarios(settings):
            with (
                locked_data(scenario.data, root) as (directory, held),
                link_of(scenario.rtt_ns) as link,
                Progress(f"{scenario.name} records", settings.repeats * len(names)) as bar,
            ):
                subjects = make_subjects(settings, iperf, link)
                there = [held.resident()]
                for run in run_rounds(scenario, directory, subjects, rounds=settings.repeats, window=window):
                    runs.append(run)
                    there.append(held.resident())
                    bar.add(1)
                resident.append(
                    figure(
                        f"data in memory, {scenario.name}",
                        "share",
                        there,
                        _held_text(held.refused),
                        at_least=None if settings.quick else 1,
                        every=True,
                    )
                )
    told = {
        "sizes": settings.sizes,
        "subjects": tuple(names),
        "warm_up_bytes": window.warm_up_bytes,
        "sample_bytes": window.sample_bytes,
    }
    figures = (
        *resident,
        *protection_figures(runs, settings.orders, bounded=not settings.quick),
        *sealing_figures(runs, settings.orders, speeds),
        *speeds,
    )
    return results_of("delivery", told, figures, runs, iperf=iperf)


COMMAND: Final = Command(
    name="delivery",
    settings=DeliverySettings,
    run=lambda settings, _: run_delivery(settings),
    text="throughput against the machine's limits and the paper's method",
    draw=draw_delivery,
)
