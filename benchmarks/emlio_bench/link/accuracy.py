"""The accuracy of a link.

Its round trip and its throughput are measured, and compared with the specification.
"""

import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from emlio.errors import ConfigError, TransportError
from emlio.units import format_duration
from emlio_bench.link.contract import Link, LinkCounts, LinkKind, LinkSpec
from emlio_bench.link.iperf import read_end, run_iperf

__all__ = [
    "LinkReport",
    "Load",
    "RoundTrip",
    "judge",
    "measure_link",
    "measure_rtt_ns",
    "ping_ns",
    "rtt_bounds_ns",
    "summarise_pings",
]

_ANSWER_S: Final = 30.0
_PINGS: Final = 21


def ping_ns(link: Link, pings: int) -> tuple[int, ...]:
    """Measure pings, one after the other, and return their durations.

    One thread plays both sides, so that the wake-up of another thread is not measured.

    Args:
        link: the link. It must carry no other traffic meanwhile.
        pings: number of pings.
    """
    try:
        with link.storage.make_socket() as listener, link.training.make_socket() as near:
            for one in (listener, near):
                one.settimeout(_ANSWER_S)
            listener.bind((link.storage.listen, 0))
            listener.listen(1)
            port = listener.getsockname()[1]
            near.connect((link.storage.address, port))
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far, _ = listener.accept()
            with far:
                far.settimeout(_ANSWER_S)
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _ping(near, far)
                return tuple(_ping(near, far) for _ in range(pings))
    except OSError as error:
        raise TransportError(f"a byte must come back over the link: {error}") from error


def measure_rtt_ns(link: Link, pings: int = _PINGS) -> int:
    """Return the median of some pings. See `ping_ns`."""
    return round(statistics.median(ping_ns(link, pings)))


def _ping(near: socket.socket, far: socket.socket) -> int:
    begun_ns = time.monotonic_ns()
    near.sendall(b"?")
    far.sendall(far.recv(1))
    near.recv(1)
    return time.monotonic_ns() - begun_ns


_LEAST_STREAMS: Final = 16
_LEAST_BITS_PER_S: Final = 6e9
"""The least throughput of `_LEAST_STREAMS` or more streams, for round trips up to `_LEAST_RTT_NS`.

A slower link would limit the benchmarks that run over it.
"""

_WARM_UP_S: Final = 1
_SPAN_S: Final = 2
_LEAST_RTT_NS: Final = 30_000_000
_RTT_SHARE: Final = 0.05
_RTT_NS: Final = 300_000
_SHORT_RTT_SHARE: Final = 0.5
"""The share of a short round trip by which it may be off, where that is less than `_RTT_NS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """A summary of pings over an idle link, in nanoseconds.

    Attributes:
        median: median of all pings.
        low: 5th percentile.
        high: 95th percentile.
        most: longest ping.
        pings: number of pings.
    """

    median: int
    low: int
    high: int
    most: int
    pings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The throughput of several TCP streams, from storage to training.

    Attributes:
        streams: number of concurrent streams.
        payload_bytes: payload that arrived.
        elapsed_ns: length of the sample.
        dropped_packets: packets that the link dropped.
        link_cpu_s_per_gb: processor time of the link's own processes for a GB on the wire; None if
            the kernel moves the packets.
    """

    streams: int
    payload_bytes: int
    elapsed_ns: int
    dropped_packets: int = 0
    link_cpu_s_per_gb: float | None = None

    def __post_init__(self) -> None:
        if self.streams < 1 or self.elapsed_ns < 1:
            raise ConfigError(
                f"a load must have a stream and take time, got {self.streams} streams and {self.elapsed_ns} ns"
            )

    @property
    def bits_per_s(self) -> float:
        """Payload in bits per second."""
        return self.payload_bytes * 8e9 / self.elapsed_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """The specification and the measurements of a link, for results.

    Attributes:
        kind: implementation of the link.
        rtt_ns: requested round trip.
        rate_bytes_per_s: requested rate; None for no limit.
        tuned: whether TCP's buffers were raised.
        measured: measured round trip.
        loads: throughput of streams.
        missed: deviations from the specification, in words; empty if there are none.
        own_ns: time that the link itself adds to a round trip. It counts as a part of the requested
            round trip: the link delays packets for that much less.
        moved_by: what moves the packets.
    """

    kind: LinkKind
    rtt_ns: int
    rate_bytes_per_s: int | None
    tuned: bool
    measured: RoundTrip
    loads: tuple[Load, ...]
    missed: tuple[str, ...]
    own_ns: int = 0
    moved_by: str = ""


def rtt_bounds_ns(rtt_ns: int) -> tuple[int, int]:
    """Return the bounds for the median of pings.

    It may be off by 5 %, or by 0.3 ms where that is more; a round trip below 0.6 ms by a half, since
    0.3 ms would allow any.
    """
    least_ns = min(_RTT_NS, round(rtt_ns * _SHORT_RTT_SHARE)) if rtt_ns else _RTT_NS
    margin_ns = max(round(rtt_ns * _RTT_SHARE), least_ns)
    return max(rtt_ns - margin_ns, 0), rtt_ns + margin_ns


def summarise_pings(pings_ns: Sequence[int]) -> RoundTrip:
    """Return the summary of some pings."""
    if not pings_ns:
        raise ConfigError("a round trip must have at least one ping, got none")
    ordered = sorted(pings_ns)
    return RoundTrip(
        median=round(statistics.median(ordered)),
        low=_at(ordered, 5),
        high=_at(ordered, 95),
        most=ordered[-1],
        pings=len(ordered),
    )


def judge(
    spec: LinkSpec,
    kind: LinkKind,
    pings_ns: Sequence[int],
    loads: Sequence[Load] = (),
    *,
    own_ns: int = 0,
    moved_by: str = "",
) -> LinkReport:
    """Compare the measurements of a link with its specification.

    Args:
        spec: the specification.
        kind: the implementation of the link.
        pings_ns: pings over the idle link.
        loads: throughput of the link with no other load.
        own_ns: time that the link itself adds to a round trip, as reported by the link.
        moved_by: what moves the packets, as reported by the link.
    """
    found = summarise_pings(pings_ns)
    missed = [*_missed_rtt(spec.rtt_ns, found), *(reason for load in loads for reason in _missed_load(spec, load))]
    if kind is LinkKind.REAL:
        missed = []  # nothing was asked of a network that was there
    return LinkReport(
        kind=kind,
        rtt_ns=spec.rtt_ns,
        rate_bytes_per_s=spec.rate_bytes_per_s,
        tuned=spec.tuned,
        measured=found,
        loads=tuple(loads),
        missed=tuple(missed),
        own_ns=own_ns,
        moved_by=moved_by,
    )


def measure_link(link: Link, *, pings: int = 41, streams: Sequence[int] = (1, 8), iperf: str | None) -> LinkReport:
    """Measure a link that carries nothing else; without iperf3, only its round trip."""
    idle = ping_ns(link, pings)
    loads = [_measure_load(link, count, iperf) for count in streams] if iperf is not None else []
    return judge(link.spec, link.kind, idle, loads, own_ns=link.own_ns, moved_by=link.moved_by)


def _measure_load(link: Link, streams: int, iperf: str) -> Load:
    before, cpu_s = link.counts(), _cpu_s(link)
    # With -R the server sends, as a daemon does.
    words = ["-P", str(streams), "-R"]
    said = run_iperf(iperf, words, server=link.storage, client=link.training, warm_up_s=_WARM_UP_S, span_s=_SPAN_S)
    after, cpu_s = link.counts(), _cpu_s(link) - cpu_s
    carried = _wire_bytes(after) - _wire_bytes(before)
    received = read_end(said).sum_received
    return Load(
        streams=streams,
        payload_bytes=received.bytes,
        elapsed_ns=round(received.seconds * 1e9),
        dropped_packets=_dropped(after) - _dropped(before),
        link_cpu_s_per_gb=cpu_s * 1e9 / carried if cpu_s > 0 and carried else None,
    )


def _dropped(counts: LinkCounts) -> int:
    return counts.to_training.dropped_packets + counts.to_storage.dropped_packets


def _wire_bytes(counts: LinkCounts) -> int:
    return counts.to_training.wire_bytes + counts.to_storage.wire_bytes


def _cpu_s(link: Link) -> float:
    """Return the processor time of the link's processes so far; they live as long as the link."""
    times = [psutil.Process(pid).cpu_times() for pid in link.pids]
    return sum(one.user + one.system for one in times)


def _at(ordered: Sequence[int], percent: int) -> int:
    """Return the smallest value that at least this percentage of the values do not exceed."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]


def _missed_rtt(rtt_ns: int, found: RoundTrip) -> list[str]:
    low, high = rtt_bounds_ns(rtt_ns)
    if low <= found.median <= high:
        return []
    asked, got = format_duration(rtt_ns), format_duration(found.median)
    return [f"round trip {got} where {asked} was asked for"]


def _missed_load(spec: LinkSpec, load: Load) -> list[str]:
    missed: list[str] = []
    rate = spec.rate_bytes_per_s
    plain = rate is None and load.streams >= _LEAST_STREAMS and spec.rtt_ns <= _LEAST_RTT_NS
    got = f"{load.bits_per_s / 1e9:.3g} Gbit/s with {load.streams} streams"
    if plain and load.bits_per_s < _LEAST_BITS_PER_S:
        missed.append(f"{got} where {_LEAST_BITS_PER_S / 1e9:g} must pass")
    if rate is not None and load.bits_per_s > rate * 8:
        missed.append(f"{got} where the line's rate is {rate * 8 / 1e9:.3g}")
    if load.dropped_packets and rate is None:
        missed.append(f"{load.dropped_packets} packets dropped with {load.streams} streams where none should be")
    return missed
