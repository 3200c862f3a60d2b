"""`emlio-bench delivery`: the share of the machine's throughput that a training process gets.

With `--other` another checkout of EMLIO delivers too, in turns with this one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio.planner.order import ShuffleMode
from emlio.progress import Progress
from emlio.settings import option
from emlio_bench.delivery.cold import measure_cold
from emlio_bench.delivery.protection_cost import cipher_speeds, protection_figures
from emlio_bench.delivery.report import cpu_s_per_gb, delivery_parts, draw_delivery, label, speed
from emlio_bench.harness.command import Command, CommonSettings
from emlio_bench.harness.data import data_root, locked_data
from emlio_bench.harness.options import byte_size, count, durations, flag, folder, names
from emlio_bench.harness.results import Figure, Results, Run, figure, neighbours, ratio_values, results_of
from emlio_bench.harness.rounds import Subject, run_rounds
from emlio_bench.harness.scenario import QUICK_WINDOW, Scenario, Window, delivery_scenario, parse_sizes
from emlio_bench.harness.sides import WAYS
from emlio_bench.link.choice import link_of
from emlio_bench.link.contract import Link
from emlio_bench.link.iperf import find_iperf
from emlio_bench.subjects.bare import Bare
from emlio_bench.subjects.iperf import Iperf
from emlio_bench.subjects.loader import OTHER, Loader
from emlio_bench.subjects.paper import Paper

__all__ = ["COMMAND", "DeliverySettings", "make_subjects", "other_figures", "run_delivery"]

_SMALL_RECORD: Final = 50_000
_QUICK_BYTES: Final = 16_000_000
_LONG_NS: Final = 60_000_000_000
"""The longest sample over a link: 3 GB at 0.4 Gbit/s."""

_SUBJECTS: Final = ("limit", "bare", "emlio", "rows", "sealed", "paper", "views", "keyed")
_OWN_SUBJECTS: Final = ("emlio", "rows", "views", "sealed", "keyed")
_USUAL_SUBJECTS: Final = _SUBJECTS[:-2]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings(CommonSettings):
    """`emlio-bench delivery`."""

    sizes: tuple[int, ...] = option(
        (1_000, 10_000, 100_000, 2_000_000),
        "sizes of records (default 1kB,10kB,100kB,2MB)",
        parse=parse_sizes,
        metavar="SIZE,...",
    )
    orders: tuple[str, ...] = names(
        [mode.value for mode in ShuffleMode], "the loader's orders (default global,shard)", ("global", "shard")
    )
    subjects: tuple[str, ...] = names(
        _SUBJECTS,
        "who is measured: emlio, rows and views are without keys: records as slices, as one array a batch, as slices that are "
        "all asked for; sealed and keyed are with keys, keyed without encryption "
        f"(default {','.join(_USUAL_SUBJECTS)})",
        _USUAL_SUBJECTS,
    )
    repeats: int = count(5, "rounds; one sample of each subject in each")
    bytes: int = byte_size("2GB", "payload of a sample, but at most 4 s of it, over a link 60 s")
    warm_up: int = byte_size("100MB", "payload before a sample; more than two epochs show what later ones take")
    rtts: tuple[int, ...] = durations(
        "",
        f"deliver over links of these round trips; --subjects of {','.join(_OWN_SUBJECTS)} only (default: on loopback)",
    )
    other: Path | None = folder(
        "another checkout of emlio: deliver with it in turns with this one, and tell the ratios"
    )

    cold: bool = flag(
        "measure data that are not in the page cache instead: each sample has a new daemon, which reads through the cache "
        "(--io cache) or past it (--io direct), in turns; --data should lie on the disk to measure"
    )

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.rtts and not set(self.subjects) <= set(_OWN_SUBJECTS):
            raise ConfigError(f"--rtts needs --subjects of {','.join(_OWN_SUBJECTS)}, got {','.join(self.subjects)}")
        if self.cold and (self.rtts or self.other is not None):
            raise ConfigError("--cold is on loopback and for this checkout only, got --rtts or --other")
        if self.other is not None and not (self.other / "emlio" / "__init__.py").is_file():
            raise ConfigError(f"--other must hold the file emlio/__init__.py, got {self.other}")


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
                ours = Loader(order="", way=way, form=form, link=link)
                checkouts = (None, settings.other) if settings.other is not None else (None,)
                subjects += [
                    replace(ours, order=order, other=checkout) for order in settings.orders for checkout in checkouts
                ]
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
    return Window(
        warm_up_bytes=settings.warm_up, sample_bytes=settings.bytes, **({"most_ns": _LONG_NS} if settings.rtts else {})
    )


def _held_text(refused: str) -> str:
    if refused:
        return f"The data were read before the first sample and not locked in memory: {refused}."
    return "The data are locked in memory; the share of their pages there is counted before and after each sample."


def run_delivery(settings: DeliverySettings) -> Results:
    """Measure all requested subjects."""
    if settings.cold:
        return measure_cold(
            _scenarios(settings),
            settings.orders,
            rounds=settings.repeats,
            data=settings.data,
            told={"sizes": settings.sizes, "orders": settings.orders, "cold": True},
        )
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
        *other_figures(runs),
        *protection_figures(runs, settings.orders, bounded=not settings.quick),
        *speeds,
    )
    return results_of("delivery", told, figures, runs, iperf=iperf)


def other_figures(runs: Sequence[Run]) -> Iterator[Figure]:
    """Yield the ratios of this checkout to the other one, within rounds."""
    note = "Ratios of this checkout to the other are of neighbours in the same round."
    for scenario in dict.fromkeys(run.scenario for run in runs):
        own = [run for run in runs if run.scenario == scenario]
        for subject in dict.fromkeys(run.subject for run in own):
            pairs = neighbours(own, subject, f"{subject}@{OTHER}")
            for words, of in (("throughput", speed), ("CPU of a byte", cpu_s_per_gb)):
                if pairs:
                    ratios = ratio_values(map(of, (this for this, _ in pairs)), map(of, (other for _, other in pairs)))
                    yield figure(f"{words}, this / other, {scenario} records, {label(subject)}", "", ratios, note)


COMMAND: Final = Command(
    name="delivery",
    settings=DeliverySettings,
    run=lambda settings, _: run_delivery(settings),
    text="throughput against the machine's limits and the paper's method",
    parts=delivery_parts,
    draw=draw_delivery,
)
