"""`emlio-bench examples`: the rate of small tf.train.Examples to one rank, decoded.

Covers: Examples of 3 kB of image bytes and a label, both fields decoded into columns, every record
checked. Does not cover: decoding images.
"""

import sys
from typing import Final

from emlio.progress import Progress
from emlio_bench.harness.data import data_root, make_data, warm_cache
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import Figure, Results, Sample
from emlio_bench.harness.runner import run_rounds
from emlio_bench.harness.scenario import MESSAGE_BYTES, QUICK_WINDOW, DataSpec, Scenario, Window
from emlio_bench.harness.settings import ExamplesSettings
from emlio_bench.subjects.loader import Loader

__all__ = ["run_examples"]

_REQUIRED_PER_S: Final = 80_000
_RECORD_BYTES: Final = 3000
_RECORDS: Final = 300_000
_WINDOW: Final = Window(warm_up_bytes=100_000_000, sample_bytes=400_000_000, least_ns=2_000_000_000)


def run_examples(settings: ExamplesSettings) -> Results:
    """Measure each order."""
    records = 20_000 if settings.quick else _RECORDS
    window = QUICK_WINDOW if settings.quick else _WINDOW
    scenario = Scenario(
        data=DataSpec(kind="example", record_bytes=_RECORD_BYTES, records=records),
        batch_records=min(settings.batch, records),
        paper_records=1,
        message_bytes=MESSAGE_BYTES,
    )
    subjects = [Loader(order=order) for order in settings.orders]
    with data_root(settings.data) as root:
        directory = make_data(scenario.data, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        with Progress("Examples", settings.repeats * len(subjects)) as bar:
            samples: list[Sample] = []
            for sample in run_rounds(scenario, directory, subjects, rounds=settings.repeats, window=window):
                samples.append(sample)
                bar.add(1)
    return Results(
        benchmark="examples",
        environment=read_environment(None),
        settings=(("orders", ",".join(settings.orders)), ("batch", str(settings.batch)), ("records", str(records))),
        samples=tuple(samples),
        figures=tuple(figure for order in settings.orders for figure in _figures(order, samples)),
    )


def _figures(order: str, samples: list[Sample]) -> tuple[Figure, ...]:
    measured = [sample.measured for sample in samples if sample.subject == f"emlio-{order}"]
    return (
        Figure(
            name=f"Examples to one rank, {order} order",
            unit="records/s",
            values=tuple(value.records_per_s for value in measured),
            at_least=_REQUIRED_PER_S,
            note=f"Examples of {_RECORD_BYTES} image bytes and a label, both fields decoded, CRC32C of every record checked.",
        ),
    )
