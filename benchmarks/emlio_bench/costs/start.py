"""Time from a loader's constructor to its first batch, on loopback and over a link."""

import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.units import format_size
from emlio_bench.costs.reading import Read, ReadOrder, read_in_process
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.harness.data import prepared
from emlio_bench.harness.results import Figure, figure, rtt_text
from emlio_bench.harness.rounds import rotated
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.sides import running_daemon
from emlio_bench.link.choice import link_of

__all__ = ["fresh_cache", "start_figures"]

FIRST: Final = "first"
REMEMBERED: Final = "remembered"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    data: DataSpec
    batch: int
    modes: tuple[str, ...]
    rtt_ns: int | None

    @property
    def name(self) -> str:
        return "loopback" if self.rtt_ns is None else rtt_text(self.rtt_ns)


def start_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield times to the constructor's end and to the first batch, by place and by what the host remembers."""
    small = DataSpec(kind="opaque", record_bytes=1_000, records=10_000 if settings.quick else 1_000_000)
    large = DataSpec(kind="opaque", record_bytes=100_000, records=640 if settings.quick else 6_000)
    for place in (
        _Place(data=small, batch=256, modes=(FIRST,), rtt_ns=None),
        _Place(data=large, batch=64, modes=(FIRST, REMEMBERED), rtt_ns=settings.rtt),
    ):
        reads = _reads(place, settings)
        note = (
            f"{place.name}: {place.data.records:,} indexed records of {format_size(place.data.record_bytes)} in global order, "
            f"batches of {place.batch}, a fresh process each time; what is remembered is what a whole epoch has left."
        )
        for mode, own in reads.items():
            at = f"{place.name}, {mode}"
            yield figure(f"{at}: constructor", "ms", (one.constructed_ns / 1e6 for one in own), note)
            yield figure(f"{at}: first batch", "ms", (one.first_batch_ns / 1e6 for one in own), note)


def _reads(place: _Place, settings: CostsSettings) -> dict[str, list[Read]]:
    found: dict[str, list[Read]] = {mode: [] for mode in place.modes}
    with (
        prepared(place.data, settings.data) as directory,
        link_of(place.rtt_ns) as link,
        tempfile.TemporaryDirectory(prefix="emlio-bench-cache-") as name,
        running_daemon(directory, link=link) as daemon,
    ):
        at, filled = link.training if link is not None else None, Path(name)

        def read(batches: int, cache: Path) -> Read:
            order = ReadOrder(address=daemon.address, batch_records=place.batch, batches=batches, cache=str(cache))
            return read_in_process(order, at)

        if REMEMBERED in place.modes:
            read(place.data.records // place.batch, filled)
        for number in range(1 if settings.quick else settings.repeats):
            for mode in rotated(place.modes, number):
                with fresh_cache(filled if mode == REMEMBERED else None) as cache:
                    found[mode].append(read(1, cache))
    return found


@contextmanager
def fresh_cache(filled: Path | None) -> Generator[Path, None, None]:
    """Provide a cache folder that is empty, or a copy of a filled one."""
    with tempfile.TemporaryDirectory(prefix="emlio-bench-cache-") as name:
        if filled is not None:
            shutil.copytree(filled, name, dirs_exist_ok=True)
        yield Path(name)
