"""`emlio-bench start --rtt`: the time from the constructor to the first batch over a long link.

A sample is a new process at the training end. In mode "first" its cache folder is empty, so it
knows nothing of the daemon. In mode "remembered" it has a copy of the folder left by an earlier run
of the same version. All kinds of samples take turns.

Covers: both modes, keys, another version of this package beside this one. Does not cover:
importing, starting the daemon, loopback (emlio_bench.start.run).
"""

import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.progress import Progress
from emlio.units import format_duration, format_size
from emlio_bench.harness.data import data_root, make_data, warm_cache
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.protected import make_keys
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.runner import rotated
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.link.choice import open_star
from emlio_bench.link.spec import LinkSpec
from emlio_bench.start.settings import REMEMBERED, StartSettings
from emlio_bench.versions.checkout import OTHER, THIS, Checkout, chosen_checkouts
from emlio_bench.versions.reads import Read, serve

__all__ = ["Start", "fresh_cache", "run_start_over_link", "start_figures"]

_RECORD_BYTES: Final = 100_000
_QUICK_RECORDS: Final = 640


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One sample.

    Attributes:
        rtt_ns: round trip of the link.
        mode: one of MODES.
        checkout: name of the version.
        round: number of the round. Samples of one link and round were taken one after the other, so
            they may be compared.
        read: report of the rank.
    """

    rtt_ns: int
    mode: str
    checkout: str
    round: int
    read: Read


def run_start_over_link(settings: StartSettings) -> Results:
    """Measure all requested starts."""
    checkouts = chosen_checkouts(settings.other)
    rounds = 1 if settings.quick else settings.rounds
    records = _QUICK_RECORDS if settings.quick else settings.record_count
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=records)
    batch = min(settings.batch_records, records)
    total = len(settings.rtt) * rounds * len(checkouts) * len(settings.modes)
    starts: list[Start] = []
    with data_root(settings.data) as root, Progress("starts", total) as bar:
        directory = make_data(data, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        for rtt_ns in settings.rtt:
            for start in _starts(directory, rtt_ns, rounds, records // batch, batch, settings, checkouts):
                starts.append(start)
                bar.add(1)
    return Results(
        benchmark="start",
        environment=read_environment(None),
        settings=(
            ("records", str(records)),
            ("batch", str(batch)),
            ("rtt_ns", ",".join(map(str, settings.rtt))),
            ("modes", ",".join(settings.modes)),
            ("keys", str(settings.keys)),
        ),
        figures=start_figures(starts, _note(settings, data, batch, checkouts)),
    )


def _starts(
    directory: Path,
    rtt_ns: int,
    rounds: int,
    epoch_batches: int,
    batch: int,
    settings: StartSettings,
    checkouts: Sequence[Checkout],
) -> Iterator[Start]:
    with (
        open_star([LinkSpec(rtt_ns=rtt_ns)]) as (link,),
        make_keys("sealed") if settings.keys else nullcontext() as keys,
        tempfile.TemporaryDirectory(prefix="emlio-bench-caches-") as folder,
        ExitStack() as daemons,
    ):
        served = [daemons.enter_context(serve(directory, checkout, link, keys)) for checkout in checkouts]
        caches = Path(folder)
        if REMEMBERED in settings.modes:
            for one in served:
                # A whole epoch, so that there is something to remember.
                one.read(epoch_batches, batch, caches / one.checkout.name)
        kinds = [(mode, one) for mode in settings.modes for one in served]
        for number in range(rounds):
            for mode, one in rotated(kinds, number):
                with fresh_cache(caches / one.checkout.name if mode == REMEMBERED else None) as cache:
                    read = one.read(1, batch, cache)
                yield Start(rtt_ns=rtt_ns, mode=mode, checkout=one.checkout.name, round=number, read=read)


@contextmanager
def fresh_cache(filled: Path | None) -> Generator[Path, None, None]:
    """Provide a cache folder for one run.

    Args:
        filled: folder of an earlier run, which is copied, so that a short run does not change the
            next one; None for an empty folder.
    """
    with tempfile.TemporaryDirectory(prefix="emlio-bench-cache-") as name:
        if filled is not None and filled.is_dir():
            shutil.copytree(filled, name, dirs_exist_ok=True)
        yield Path(name)


def start_figures(starts: Sequence[Start], note: str) -> tuple[Figure, ...]:
    """Return the times of each kind, and their ratios where both versions were measured.

    Args:
        starts: all samples.
        note: note for readers.
    """
    figures: list[Figure] = []
    for rtt_ns, mode in dict.fromkeys((start.rtt_ns, start.mode) for start in starts):
        at = f"{format_duration(rtt_ns) if rtt_ns else '0 ms'}, {mode}"
        alike = [start for start in starts if (start.rtt_ns, start.mode) == (rtt_ns, mode)]
        first_ms: dict[str, tuple[float, ...]] = {}
        for checkout in dict.fromkeys(start.checkout for start in alike):
            own = [start.read for start in sorted(alike, key=_round) if start.checkout == checkout]
            first_ms[checkout] = tuple(read.first_batch_ns / 1e6 for read in own)
            which = "" if checkout == THIS else f", {checkout} checkout"
            constructed_ms = tuple(read.constructed_ns / 1e6 for read in own)
            figures += [
                Figure(name=f"{at}: constructor{which}", unit="ms", values=constructed_ms, note=note),
                Figure(name=f"{at}: first batch{which}", unit="ms", values=first_ms[checkout], note=note),
            ]
        if OTHER in first_ms:
            ratios = tuple(ours / theirs for ours, theirs in zip(first_ms[THIS], first_ms[OTHER], strict=True))
            figures.append(Figure(name=f"{at}: first batch, this / other", unit="", values=ratios, note=note))
    return tuple(figures)


def _round(start: Start) -> int:
    return start.round


def _note(settings: StartSettings, data: DataSpec, batch: int, checkouts: Sequence[Checkout]) -> str:
    kept = "keys on both sides, payloads sealed" if settings.keys else "no keys"
    other = f"\nThe other checkout is {checkouts[-1].root.name}; ratios are within a round." if settings.other else ""
    return (
        f"From before the constructor to {batch} records of {format_size(data.record_bytes)} in the user's hands; {kept}; "
        f"{data.records:,} indexed records in global\norder, a fresh process each time. First: its cache folder is empty. "
        f"Remembered: the folder is a copy of what a whole epoch has left.{other}"
    )
