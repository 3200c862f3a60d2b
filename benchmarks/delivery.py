"""`emlio-bench delivery`: how much of what the machine can carry reaches a training process.

Covers: choosing scenarios and subjects, running them into results. Does not cover: the subjects, tables, pictures.
"""

import sys
from typing import Final

from emlio.benchmarks.bare import Bare
from emlio.benchmarks.data import data_root, make_data, warm_cache
from emlio.benchmarks.environment import read_environment
from emlio.benchmarks.iperf import Iperf, find_iperf
from emlio.benchmarks.loader import Loader
from emlio.benchmarks.paper import Paper, msgpack_is_installed
from emlio.benchmarks.protection_cost import cipher_speeds, protection_figures, sealing_figures
from emlio.benchmarks.results import Results, Sample
from emlio.benchmarks.runner import run_rounds
from emlio.benchmarks.scenario import QUICK_WINDOW, Scenario, Window, delivery_scenario
from emlio.benchmarks.settings import DeliverySettings
from emlio.benchmarks.sockets import Sockets
from emlio.benchmarks.subject import Subject
from emlio.errors import ConfigError
from emlio.progress import Progress

__all__ = ["make_subjects", "run_delivery"]

_SMALL_RECORD: Final = 50_000
_QUICK_BYTES: Final = 16_000_000


def make_subjects(settings: DeliverySettings, iperf: str | None) -> list[Subject]:
    """Those wanted, the limits first."""
    subjects: list[Subject] = []
    for word in settings.subjects:
        match word:
            case "limit":
                subjects.append(Iperf(program=iperf) if iperf is not None else Sockets())
            case "bare":
                subjects.append(Bare())
            case "emlio":
                subjects += [Loader(order=order) for order in settings.orders]
            case "sealed" | "curve" | "keyed":
                subjects += [Loader(order=order, way=word) for order in settings.orders]
            case _:
                if not msgpack_is_installed():
                    raise ConfigError(
                        "the paper's way needs msgpack: pip install \"emlio[bench]\", or leave 'paper' out of --subjects"
                    )
                subjects.append(Paper())
    return subjects


def _scenarios(settings: DeliverySettings) -> list[Scenario]:
    return [
        delivery_scenario(
            size, _QUICK_BYTES if settings.quick else 1_000_000_000 if size < _SMALL_RECORD else 2_000_000_000
        )
        for size in settings.sizes
    ]


def run_delivery(settings: DeliverySettings) -> Results:
    """Measure all that was asked for."""
    iperf = find_iperf()
    subjects = make_subjects(settings, iperf)
    window = QUICK_WINDOW if settings.quick else Window(sample_bytes=settings.bytes)
    samples: list[Sample] = []
    speeds = cipher_speeds(1 if settings.quick else settings.repeats) if "sealed" in settings.subjects else ()
    with data_root(settings.data) as root:
        for scenario in _scenarios(settings):
            directory = make_data(scenario.data, root, progress=sys.stderr.isatty())
            warm_cache(directory)
            with Progress(f"{scenario.name} records", settings.repeats * len(subjects)) as bar:
                for sample in run_rounds(scenario, directory, subjects, rounds=settings.repeats, window=window):
                    samples.append(sample)
                    bar.add(1)
    return Results(
        benchmark="delivery",
        environment=read_environment(iperf),
        settings=(
            ("sizes", ",".join(map(str, settings.sizes))),
            ("subjects", ",".join(subject.name for subject in subjects)),
            ("warm_up_bytes", str(window.warm_up_bytes)),
            ("sample_bytes", str(window.sample_bytes)),
        ),
        samples=tuple(samples),
        figures=(
            *protection_figures(samples, settings.orders, bounded=not settings.quick),
            *sealing_figures(samples, settings.orders, speeds),
            *speeds,
        ),
    )
