"""Small Examples a second, decoded, for one rank."""

from collections.abc import Iterator
from typing import Final

from emlio_bench.costs.settings import CostsSettings
from emlio_bench.harness.data import prepared
from emlio_bench.harness.figures import figure
from emlio_bench.harness.results import Figure
from emlio_bench.harness.runner import run_rounds
from emlio_bench.harness.scenario import MESSAGE_BYTES, QUICK_WINDOW, DataSpec, Scenario, Window
from emlio_bench.subjects.loader import Loader

__all__ = ["examples_figures"]

_REQUIRED_PER_S: Final = 80_000
_RECORD_BYTES: Final = 3000
_WINDOW: Final = Window(warm_up_bytes=100_000_000, sample_bytes=400_000_000, least_ns=2_000_000_000)


def examples_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield the rates in global order and in shard order."""
    data = DataSpec(kind="example", record_bytes=_RECORD_BYTES, records=20_000 if settings.quick else 300_000)
    scenario = Scenario(data=data, batch_records=256, paper_records=1, message_bytes=MESSAGE_BYTES)
    orders = ("global", "shard")
    subjects = [Loader(order=order) for order in orders]
    window = QUICK_WINDOW if settings.quick else _WINDOW
    with prepared(data, settings.data) as directory:
        runs = list(run_rounds(scenario, directory, subjects, rounds=settings.repeats, window=window))
    for order in orders:
        yield figure(
            f"Examples to one rank, {order} order",
            "records/s",
            (run.value("records/s") for run in runs if run.subject == f"emlio-{order}"),
            f"Examples of {_RECORD_BYTES} image bytes and a label, both fields decoded, CRC32C of every record checked.",
            at_least=_REQUIRED_PER_S,
        )
