"""`emlio-bench memory --rtt`: memory of a rank whose user is slower than the link.

Covers: the peak resident memory of the rank's process beside its memory after imports, for several
numbers of lanes, also with another version of this package. Does not cover: the daemon, the
kernel's socket buffers, a pause (emlio_bench.memory.run).
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.progress import Progress
from emlio.units import format_duration, format_size
from emlio_bench.harness.data import data_root, make_data, warm_cache
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.runner import rotated
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.link.choice import open_star
from emlio_bench.link.contract import Link
from emlio_bench.link.spec import LinkSpec
from emlio_bench.memory.settings import MemorySettings
from emlio_bench.versions.checkout import THIS, Checkout, chosen_checkouts
from emlio_bench.versions.reads import Read, serve

__all__ = ["SlowRank", "memory_figures", "run_memory_over_link"]

_RECORD_BYTES: Final = 100_000
_RECORDS: Final = 6_000
_PREFETCH: Final = "128MiB"
_QUICK_RECORDS: Final = 640
_QUICK_SECONDS: Final = 1
_MIB: Final = 1 << 20
_SLOWER: Final = 4
"""The factor by which a sample may take longer, since a link may be slower than the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """One sample.

    Attributes:
        rtt_ns: round trip of the link.
        lanes: requested number of lanes.
        checkout: name of the version.
        read: report of the rank.
    """

    rtt_ns: int
    lanes: int
    checkout: str
    read: Read


def run_memory_over_link(settings: MemorySettings) -> Results:
    """Measure all requested rounds."""
    checkouts = chosen_checkouts(settings.other)
    rounds, seconds = (1, _QUICK_SECONDS) if settings.quick else (settings.repeats, settings.seconds)
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=_QUICK_RECORDS if settings.quick else _RECORDS)
    batch = min(settings.batch_records, data.records)
    kinds = [(lanes, checkout) for lanes in settings.lanes for checkout in checkouts]
    samples: list[SlowRank] = []
    with data_root(settings.data) as root, Progress("samples", len(settings.rtt) * rounds * len(kinds)) as bar:
        directory = make_data(data, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        for rtt_ns in settings.rtt:
            with open_star([LinkSpec(rtt_ns=rtt_ns)]) as (link,):
                for number in range(rounds):
                    for lanes, checkout in rotated(kinds, number):
                        read = _read(directory, checkout, link, lanes, batch, settings.rate, seconds)
                        samples.append(SlowRank(rtt_ns=rtt_ns, lanes=lanes, checkout=checkout.name, read=read))
                        bar.add(1)
    note = (
        f"Resident memory of the rank's process: after its imports, and the most from then on. Its user takes "
        f"{format_size(settings.rate)} a second\nfor {seconds} s, in batches of {batch} records of "
        f"{format_size(_RECORD_BYTES)}; prefetch {_PREFETCH}; no keys."
    )
    return Results(
        benchmark="memory",
        environment=read_environment(None),
        settings=(
            ("rtt_ns", ",".join(map(str, settings.rtt))),
            ("lanes", ",".join(map(str, settings.lanes))),
            ("rate", str(settings.rate)),
            ("seconds", str(seconds)),
            ("batch", str(batch)),
        ),
        figures=memory_figures(samples, note),
    )


def _read(
    directory: Path, checkout: Checkout, link: Link, lanes: int, batch: int, bytes_per_s: int, seconds: int
) -> Read:
    batches = max(seconds * bytes_per_s // (batch * _RECORD_BYTES), 2)
    with (
        tempfile.TemporaryDirectory(prefix="emlio-bench-cache-") as cache,
        serve(directory, checkout, link, lanes=lanes) as served,
    ):
        return served.read(
            batches,
            batch,
            Path(cache),
            bytes_per_s=bytes_per_s,
            prefetch=_PREFETCH,
            within_s=_SLOWER * seconds + ANSWER_S,
        )


def memory_figures(samples: Sequence[SlowRank], note: str) -> tuple[Figure, ...]:
    """Return the memory of each kind of rank, and the rate of its user.

    Args:
        samples: all samples.
        note: note for readers.
    """
    figures: list[Figure] = []
    for rtt_ns, lanes, checkout in sorted({(one.rtt_ns, one.lanes, one.checkout) for one in samples}, key=_order):
        own = [one.read for one in samples if (one.rtt_ns, one.lanes, one.checkout) == (rtt_ns, lanes, checkout)]
        which = "" if checkout == THIS else f", {checkout} checkout"
        at = f"{format_duration(rtt_ns) if rtt_ns else '0 ms'}, {lanes} lanes{which}"
        figures += [
            Figure(
                name=f"{at}: after imports",
                unit="MiB",
                values=tuple(read.imported_bytes / _MIB for read in own),
                note=note,
            ),
            Figure(name=f"{at}: peak", unit="MiB", values=tuple(read.peak_bytes / _MIB for read in own), note=note),
            Figure(
                name=f"{at}: peak on top of imports",
                unit="MiB",
                values=tuple((read.peak_bytes - read.imported_bytes) / _MIB for read in own),
                note=note,
            ),
            Figure(
                name=f"{at}: the user had",
                unit="MB/s",
                values=tuple(read.later_bytes_per_s / 1e6 for read in own),
                note=note,
            ),
            Figure(name=f"{at}: lanes in use", unit="", values=tuple(float(read.lanes) for read in own), note=note),
        ]
    return tuple(figures)


def _order(kind: tuple[int, int, str]) -> tuple[int, int, bool]:
    rtt_ns, lanes, checkout = kind
    return rtt_ns, lanes, checkout != THIS
