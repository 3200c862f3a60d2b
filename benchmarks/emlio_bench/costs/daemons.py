"""Several daemons, each behind a slow line of its own: what they deliver together beside one of them.

One rank of three is slow, and sleeps so long with each batch that it can use 60 % of its fair share of all lines. Then
none is slow, and then one sleeps for two seconds with each batch: what it leaves on the lines is for the others.
"""

import os
import signal
import time
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from emlio.errors import ConfigError
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.harness.data import prepared, split_evenly
from emlio_bench.harness.results import Figure, figure, ratio_values, rtt_text
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.sides import ANSWER_S, joint_address, open_rank, running_daemon
from emlio_bench.link.choice import open_star
from emlio_bench.link.contract import LinkSpec
from emlio_bench.processes.child import say, start_worker

__all__ = ["daemons_figures", "line_spec", "read_on", "received_between"]

_MANY: Final = 4
_RANKS: Final = 3
_RATE: Final = 50_000_000
"""Bytes a second of a line."""
_QUEUE_NS: Final = 100_000_000
"""The longest that packets wait in front of a line, at any round trip, as a router has a buffer for its rate."""
_RECORD_BYTES: Final = 100_000
_BATCH: Final = 32
_WINDOW_BYTES: Final = 128 << 20
_SLOW_WINDOW_BYTES: Final = 32 << 20
"""The slow rank's window, which is full when a sample begins."""
_SLOW_PART: Final = 0.6
_SLEEP_S: Final = 2.0
_LEAST_PART: Final = 0.95
_NEAR_NS: Final = 100_000


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The orders of a rank."""

    address: str
    job: str
    rank: int = 0
    sleep_s: float = 0.0


class Mark(NamedTuple):
    """A moment at which a batch was taken, and the bytes received until then."""

    at_ns: int
    received: int


def received_between(marks: Sequence[Mark], begin_ns: int, end_ns: int) -> float:
    """Return the bytes of a span; of a batch across an edge its part counts.

    Raises:
        ConfigError: the rank did not read in all of the span.
    """
    if not marks or not marks[0].at_ns <= begin_ns < end_ns <= marks[-1].at_ns:
        raise ConfigError(f"a rank must read in all of [{begin_ns}, {end_ns}] ns, it had {len(marks)} batches")
    return _total_at(marks, end_ns) - _total_at(marks, begin_ns)


def _total_at(marks: Sequence[Mark], at_ns: int) -> float:
    place = max(bisect_left(marks, at_ns, key=lambda mark: mark.at_ns), 1)
    (earlier_ns, earlier), (later_ns, later) = marks[place - 1], marks[place]
    return earlier + (at_ns - earlier_ns) / (later_ns - earlier_ns) * (later - earlier)


def read_on(orders: bytes) -> None:
    """Read epoch after epoch until SIGTERM; the program of a rank."""
    order = msgspec.json.decode(orders, type=RankOrder)
    os.environ["EMLIO_JOB"] = order.job  # as a launcher would set it
    window, marks, ended = (_SLOW_WINDOW_BYTES if order.sleep_s else _WINDOW_BYTES), list[Mark](), list[int]()
    with open_rank(order.address, _BATCH, seed=1, rank=order.rank, world_size=_RANKS, prefetch=window) as loader:
        signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
        while not ended:
            for _ in loader:
                over = bool(ended)  # first, so that the last mark is later than the signal
                marks.append(Mark(time.monotonic_ns(), loader.stats().received_bytes))
                if len(marks) == 1:
                    say(marks[0])
                if over:
                    break
                time.sleep(order.sleep_s)
        say(marks)


def line_spec(rtt_ns: int) -> LinkSpec:
    """Return the line in front of a daemon."""
    queue_bytes = _RATE * (rtt_ns // 2 + _QUEUE_NS) // 1_000_000_000
    return LinkSpec(rtt_ns=rtt_ns, rate_bytes_per_s=_RATE, queue_bytes=queue_bytes)


def _slow_s(daemons: int) -> float:
    return _BATCH * _RECORD_BYTES / (daemons * _RATE / _RANKS * _SLOW_PART)


def daemons_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield what one daemon and four take off the wire together, and what the quick ranks have of it."""
    warm_up_s, span_s, rounds = (1, 1, 1) if settings.quick else (10, 12, settings.repeats)
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=1_600 if settings.quick else 12_000, shards=16)
    note = (
        f"Lines of {_RATE * 8e-6:g} Mbit/s, a global order, {_RANKS} ranks, samples of {span_s} s after {warm_up_s} s. "
        "Ratios are within a round."
    )
    cases = {"one": (1, _slow_s(1)), "four": (_MANY, _slow_s(_MANY)), "even": (_MANY, 0.0), "asleep": (_MANY, _SLEEP_S)}
    with prepared(data, settings.data) as directory:
        parts = {count: split_evenly(directory, count) for count in (1, _MANY)}
        for rtt_ns in (_NEAR_NS, settings.rtt):
            found: dict[str, list[list[float]]] = {name: [] for name in cases}
            lost: list[float] = []
            for number in range(rounds):
                for name, (count, sleep_s) in list(cases.items())[:: -1 if number % 2 else 1]:
                    rates, missing = _measure(parts[count], rtt_ns, sleep_s, warm_up_s, span_s)
                    found[name].append(rates)
                    lost.append(missing)
            yield from _figures(rtt_text(rtt_ns), found, lost, note, bounded=not settings.quick)


def _figures(
    at: str, found: dict[str, list[list[float]]], lost: list[float], note: str, *, bounded: bool
) -> Iterator[Figure]:
    one, four, even = ([sum(rates) for rates in found[name]] for name in ("one", "four", "even"))
    quick, quick_even = ([sum(rates[:-1]) for rates in found[name]] for name in ("asleep", "even"))
    yield figure(f"{at}: one daemon", "Gbit/s", one, note)
    yield figure(f"{at}: {_MANY} daemons", "Gbit/s", four, note)
    ratios = ratio_values(four, (_MANY * rate for rate in one))
    yield figure(f"{at}: {_MANY} daemons over {_MANY} x one", "", ratios, at_least=_LEAST_PART if bounded else None)
    yield figure(f"{at}: the slow rank's part", "Gbit/s", (rates[-1] for rates in found["four"]), note)
    yield figure(f"{at}: all ranks quick", "Gbit/s", even, note)
    yield figure(f"{at}: the quick ranks while one sleeps", "Gbit/s", quick, note)
    kept = ratio_values(quick, quick_even)
    yield figure(f"{at}: the same over what they have while none is slow", "", kept, at_least=1 if bounded else None)
    busy = f"{at}: packets this machine was too busy for"
    yield figure(busy, "packets", lost, note, at_most=0 if bounded else None, every=True)


def _measure(
    parts: Sequence[Path], rtt_ns: int, sleep_s: float, warm_up_s: int, span_s: int
) -> tuple[list[float], float]:
    """Return each rank's Gbit/s, the slow one's last, and the packets that were lost to a busy machine."""
    with open_star([line_spec(rtt_ns)] * len(parts)) as links, ExitStack() as stack:
        daemons = [
            stack.enter_context(running_daemon(part, [], link=link)) for link, part in zip(links, parts, strict=True)
        ]
        order, enter = RankOrder(address=joint_address(daemons), job=uuid.uuid4().hex), links[0].training.command
        ranks = [
            stack.enter_context(
                start_worker("cost-daemons", msgspec.structs.replace(order, rank=rank, sleep_s=one), enter)
            )
            for rank, one in enumerate([0.0] * (_RANKS - 1) + [sleep_s])
        ]
        for child in ranks:
            child.hear(Mark, ANSWER_S)
        begin_ns = time.monotonic_ns() + warm_up_s * 1_000_000_000
        time.sleep(warm_up_s + span_s)
        for child in ranks:
            os.kill(child.pid, signal.SIGTERM)
        marks = [child.hear(list[Mark], ANSWER_S) for child in ranks]
        for child in ranks:
            child.rest(ANSWER_S)
        counts = [link.counts().to_training for link in links]
    end_ns = begin_ns + span_s * 1_000_000_000
    rates = [received_between(one, begin_ns, end_ns) * 8e-9 / span_s for one in marks]
    return rates, float(sum(line.unread_packets + line.refused_packets for line in counts))
