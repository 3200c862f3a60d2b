"""`emlio-bench scaling`: the joint throughput of several daemons behind slow lines.

Every daemon has a network namespace, a part of the shards and a line of a limited rate. All lines
lead to one namespace with the ranks, one of which is a straggler. The lines are the limit: N
daemons should fill N lines. Each sample uses new links, daemons and ranks.

Covers: the rounds, one sample. Does not cover: figures (emlio_bench.scaling.figures), a rank
(emlio_bench.scaling.rank), the plot (emlio_bench.scaling.plot).
"""

import math
import os
import signal
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from emlio.progress import Progress
from emlio.units import format_duration, format_size
from emlio_bench.harness.command import Command
from emlio_bench.harness.daemon import RunningDaemon, joint_address, running_daemon
from emlio_bench.harness.data import prepared, split_evenly
from emlio_bench.harness.figures import results_of
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.harness.results import Results
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.link.choice import choose_kind, open_star
from emlio_bench.link.contract import Link, LinkKind
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import start_worker
from emlio_bench.scaling.figures import ScalingSample, Way, scaling_figures
from emlio_bench.scaling.plot import draw_scaling
from emlio_bench.scaling.rank import SLOW_WINDOW_BYTES, Mark, RankOrder, Share, share_between
from emlio_bench.scaling.settings import ScalingSettings

__all__ = ["COMMAND", "kinds", "line_spec", "run_scaling", "shards_for", "work_ns"]

_RECORD_BYTES: Final = 100_000
_RECORDS: Final = 12_000
_QUICK_RECORDS: Final = 1_600
_QUICK_COUNT: Final = 2
_LEAST_SHARDS: Final = 16
_SLEEP_NS: Final = 2_000_000_000
_WARM_UP_S: Final = 10
"""The warm-up before a sample.

By its end the window of the slow rank and the queues of its lanes are full, even at a third of one
line. Data that fill them are in transit, and not yet received by a rank.
"""

_QUICK_WARM_UP_S: Final = 1


def kinds(daemons: Sequence[int], number: int) -> tuple[tuple[int, Way], ...]:
    """Return the samples of a round at one round trip, in order.

    Each is a number of daemons and the behaviour of the last rank.

    Args:
        daemons: numbers of daemons that are compared; the last is the greatest.
        number: number of the round; every other round has the reverse order.
    """
    order = (*((count, Way.SLOW) for count in daemons), (daemons[-1], Way.EVEN), (daemons[-1], Way.ASLEEP))
    return order if number % 2 == 0 else order[::-1]


def work_ns(settings: ScalingSettings, daemons: int, way: Way) -> int:
    """Return the pause of the last rank for a batch.

    A slow rank can then use no more than its percentage of a fair share of the lines.
    """
    if way is Way.EVEN:
        return 0
    if way is Way.ASLEEP:
        return _SLEEP_NS
    fair_bits_per_s = daemons * settings.rate / settings.ranks
    return round(settings.batch * _RECORD_BYTES * 8e9 / (fair_bits_per_s * settings.slow / 100))


def line_spec(settings: ScalingSettings, rtt_ns: int) -> LinkSpec:
    """Return the specification of a daemon's line.

    Its queue is sized by its rate and a fixed time, as a router's is, because a router does not
    know its users' round trips.
    """
    rate = settings.rate // 8
    return LinkSpec(
        rtt_ns=rtt_ns, rate_bytes_per_s=rate, queue_bytes=rate * (rtt_ns // 2 + settings.queue) // 1_000_000_000
    )


def shards_for(daemons: Sequence[int]) -> int:
    """Return a number of shards that each of these numbers of daemons divides."""
    together = math.lcm(*daemons)
    return together * -(-_LEAST_SHARDS // together)


def run_scaling(settings: ScalingSettings) -> Results:
    """Measure all requested rounds."""
    kind, missing = choose_kind(None)
    daemons = settings.daemons[:_QUICK_COUNT] if settings.quick else settings.daemons
    rounds = 1 if settings.quick else settings.repeats
    warm_up_s, span_s = (_QUICK_WARM_UP_S, 1) if settings.quick else (_WARM_UP_S, settings.seconds)
    data = DataSpec(
        kind="opaque",
        record_bytes=_RECORD_BYTES,
        records=_QUICK_RECORDS if settings.quick else _RECORDS,
        shards=shards_for(daemons),
    )
    samples: list[ScalingSample] = []
    total = rounds * len(settings.rtts) * len(kinds(daemons, 0))
    with prepared(data, settings.data) as directory, Progress("samples", total) as bar:
        parts = {count: split_evenly(directory, count) for count in daemons}
        for number in range(rounds):
            for rtt_ns in settings.rtts:
                for count, way in kinds(daemons, number):
                    samples.append(_measure(parts[count], settings, kind, rtt_ns, way, warm_up_s, span_s))
                    bar.add(1)
    told = {
        "kind": kind,
        "daemons": daemons,
        "rate_bits_per_s": settings.rate,
        "rtts_ns": settings.rtts,
        "queue_ns": settings.queue,
        "ranks": settings.ranks,
        "slow_percent": settings.slow,
        "lanes": _lanes(settings),
        "window_bytes": settings.window,
        "batch": settings.batch,
        "seconds": span_s,
    }
    note = _note(settings, data, span_s, kind, missing)
    return results_of("scaling", told, scaling_figures(samples, note=note, bounded=not settings.quick))


def _measure(
    parts: Sequence[Path], settings: ScalingSettings, kind: LinkKind, rtt_ns: int, way: Way, warm_up_s: int, span_s: int
) -> ScalingSample:
    spec = line_spec(settings, rtt_ns)
    with open_star([spec] * len(parts), kind) as links, ExitStack() as stack:
        daemons: list[RunningDaemon] = []
        for link, part in zip(links, parts, strict=True):
            daemons.append(stack.enter_context(running_daemon(part, ["--lanes", _lanes(settings)], link=link)))
        work = [0] * (settings.ranks - 1) + [work_ns(settings, len(parts), way)]
        order = RankOrder(
            address=joint_address(daemons),
            job=uuid.uuid4().hex,
            rank=0,
            ranks=settings.ranks,
            batch_records=settings.batch,
            record_bytes=_RECORD_BYTES,
            window_bytes=settings.window,
        )
        shares = _read(order, work, links[0], warm_up_s, span_s)
        counts = [link.counts().to_training for link in links]
    return ScalingSample(
        rtt_ns=rtt_ns,
        daemons=len(parts),
        way=way,
        rates_bytes_per_s=tuple(share.received / span_s for share in shares),
        used_bytes_per_s=sum(share.used for share in shares) / span_s,
        lost_packets=sum(line.unread_packets + line.refused_packets for line in counts),
        latest_ns=max(line.latest_ns for line in counts),
    )


def _lanes(settings: ScalingSettings) -> str:
    return str(settings.lanes or "auto")


def _read(order: RankOrder, work: Sequence[int], link: Link, warm_up_s: int, span_s: int) -> list[Share]:
    """Run ranks at the training end; return the data of each rank in the span."""
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                start_worker(
                    "scaling-read", msgspec.structs.replace(order, rank=rank, work_ns=one), link.training.command
                )
            )
            for rank, one in enumerate(work)
        ]
        for child in ranks:
            child.hear(Mark, ANSWER_S)
        begin_ns = time.monotonic_ns() + warm_up_s * 1_000_000_000
        end_ns = begin_ns + span_s * 1_000_000_000
        time.sleep(warm_up_s + span_s)
        for child in ranks:
            os.kill(child.pid, signal.SIGTERM)
        marks = [child.hear(list[Mark], ANSWER_S) for child in ranks]
        for child in ranks:
            child.rest(ANSWER_S)
    return [share_between(one, begin_ns, end_ns) for one in marks]


def _note(settings: ScalingSettings, data: DataSpec, span_s: int, kind: LinkKind, missing: Sequence[str]) -> str:
    unlike = f" ({'; '.join(missing)})" if missing else ""
    works = " and ".join(
        f"{format_duration(work_ns(settings, count, Way.SLOW))} with {count}"
        for count in (settings.daemons[0], settings.daemons[-1])
    )
    return (
        f"Lines of {settings.rate / 1e6:g} Mbit/s in each direction, headers included; packets wait for them at most "
        f"{format_duration(settings.queue)}; kind: {kind}{unlike}.\n"
        f"What {settings.ranks} ranks took off the wire in {span_s} s in which all read: batches of {settings.batch} records of "
        f"{format_size(data.record_bytes)} in global order, lanes: {_lanes(settings)}, windows of\n"
        f"{format_size(settings.window)}. The slow rank sleeps with each batch ({works} daemons), so that it can use "
        f"{settings.slow} % of its\nfair share of the lines, and has one of {format_size(SLOW_WINDOW_BYTES)}, which is full by "
        f"then. One that sleeps does so for {format_duration(_SLEEP_NS)} with each batch. Ratios are within a round."
    )


COMMAND: Final = Command(
    name="scaling",
    settings=ScalingSettings,
    run=lambda settings, _: run_scaling(settings),
    text="what several daemons deliver together, each behind a slow line of its own, while one rank is slow",
    draw=draw_scaling,
)
