"""`emlio-bench memory --rtt`: memory of a rank whose user is slower than the link.

Covers: the peak resident memory of the rank's process beside its memory after imports, for several
numbers of lanes, also with another version of this package. Does not cover: the daemon, the
kernel's socket buffers, a pause (emlio_bench.memory.run).
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.progress import Progress
from emlio.units import format_size
from emlio_bench.experiment.data import prepared
from emlio_bench.experiment.figures import MIB, figure, results_of, rtt_text
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
    total = len(settings.rtt) * rounds * len(kinds)
    with prepared(data, settings.data) as directory, Progress("samples", total) as bar:
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
    told = {
        "rtt_ns": settings.rtt,
        "lanes": settings.lanes,
        "rate": settings.rate,
        "seconds": seconds,
        "batch": batch,
    }
    return results_of("memory", told, memory_figures(samples, note))


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
        at = f"{rtt_text(rtt_ns)}, {lanes} lanes{which}"
        figures += [
            figure(f"{at}: after imports", "MiB", (read.imported_bytes / MIB for read in own), note),
            figure(f"{at}: peak", "MiB", (read.peak_bytes / MIB for read in own), note),
            figure(
                f"{at}: peak on top of imports",
                "MiB",
                ((read.peak_bytes - read.imported_bytes) / MIB for read in own),
                note,
            ),
            figure(f"{at}: the user had", "MB/s", (read.later_bytes_per_s / 1e6 for read in own), note),
            figure(f"{at}: lanes in use", "", (float(read.lanes) for read in own), note),
        ]
    return tuple(figures)


def _order(kind: tuple[int, int, str]) -> tuple[int, int, bool]:
    rtt_ns, lanes, checkout = kind
    return rtt_ns, lanes, checkout != THIS
