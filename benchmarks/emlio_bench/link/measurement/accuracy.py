"""The accuracy of a link.

Covers: comparing the measured round trip and throughput with the specification, as one value for
results. Pure. Does not cover: measuring (emlio_bench.link.measurement.ping,
emlio_bench.link.measurement.throughput).
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError
from emlio.units import format_duration
from emlio_bench.link.contract import LinkKind
from emlio_bench.link.measurement.throughput import Load
from emlio_bench.link.spec import LinkSpec

__all__ = [
    "LEAST_BITS_PER_S",
    "LEAST_STREAMS",
    "LinkReport",
    "RoundTrip",
    "judge",
    "least_bits_per_s",
    "rtt_bounds_ns",
    "summarise_pings",
]

LEAST_STREAMS: Final = 16
LEAST_BITS_PER_S: Final = 6e9
"""The least throughput of `LEAST_STREAMS` or more streams, for round trips up to `_LEAST_RTT_NS`.

A slower link would limit the benchmarks that run over it.
"""

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
class LinkReport:
    """The specification and the measurements of a link, for results.

    Attributes:
        kind: implementation of the link.
        rtt_ns: requested round trip.
        jitter_ns: requested jitter.
        loss: requested loss, as a share of segments.
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
    jitter_ns: int
    loss: float
    rate_bytes_per_s: int | None
    tuned: bool
    measured: RoundTrip
    loads: tuple[Load, ...]
    missed: tuple[str, ...]
    own_ns: int = 0
    moved_by: str = ""

    @property
    def objections(self) -> tuple[str, ...]:
        """Deviations, also those of results from before a bound was narrowed; none of a network that was there."""
        if self.kind is LinkKind.REAL:
            return self.missed
        return tuple(dict.fromkeys((*_missed_rtt(self.rtt_ns, self.measured), *self.missed)))


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
    return LinkReport(
        kind=kind,
        rtt_ns=spec.rtt_ns,
        jitter_ns=spec.jitter_ns,
        loss=spec.loss,
        rate_bytes_per_s=spec.rate_bytes_per_s,
        tuned=spec.tuned,
        measured=found,
        loads=tuple(loads),
        missed=tuple(missed),
        own_ns=own_ns,
        moved_by=moved_by,
    )


def least_bits_per_s(spec: LinkSpec, streams: int) -> float | None:
    """Return the least throughput of this many streams together; None if there is no minimum."""
    plain = spec.rate_bytes_per_s is None and not spec.loss
    return LEAST_BITS_PER_S if plain and streams >= LEAST_STREAMS and spec.rtt_ns <= _LEAST_RTT_NS else None


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
    least, rate = least_bits_per_s(spec, load.streams), spec.rate_bytes_per_s
    got = f"{load.bits_per_s / 1e9:.3g} Gbit/s with {load.streams} streams"
    if least is not None and load.bits_per_s < least:
        missed.append(f"{got} where {least / 1e9:g} must pass")
    if rate is not None and load.bits_per_s > rate * 8:
        missed.append(f"{got} where the line's rate is {rate * 8 / 1e9:.3g}")
    if load.dropped_packets and rate is None:
        missed.append(f"{load.dropped_packets} packets dropped with {load.streams} streams where none should be")
    return missed
