"""The throughput of several TCP streams over a link, from storage to training.

Covers: one sample by iperf3, or by plain sockets if iperf3 is not installed. Does not cover: the
expected throughput (emlio_bench.link.measurement.accuracy), the processes with plain sockets
(emlio_bench.link.measurement.streams).
"""

import sys
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import psutil

from emlio.errors import ConfigError
from emlio_bench.link.contract import Link, LinkEnd
from emlio_bench.link.measurement.iperf import read_end, run_iperf
from emlio_bench.link.measurement.streams import Arrived, ReceiveOrder, Sending, SendOrder, Sent
from emlio_bench.link.process.channel import LinkCounts
from emlio_bench.processes.child import Child

__all__ = ["Load", "measure_load", "read_iperf"]

_ANSWER_S: Final = 30.0
_STREAMS: Final = "emlio_bench.link.measurement.streams"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One sample of a link's throughput.

    Attributes:
        streams: number of concurrent streams.
        payload_bytes: payload that arrived.
        elapsed_ns: length of the sample.
        retransmits: retransmitted segments; None if unknown.
        dropped_packets: packets that the link dropped, apart from the requested loss.
        tool: tool of the measurement.
        link_cpu_s_per_gb: processor time of the link's own processes for a GB on the wire; None if
            the kernel moves the packets.
    """

    streams: int
    payload_bytes: int
    elapsed_ns: int
    retransmits: int | None
    dropped_packets: int
    tool: str
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


def read_iperf(said: bytes, streams: int) -> Load:
    """Read the output of `iperf3 -J`. The packets that the link dropped are not included."""
    end = read_end(said)
    return Load(
        streams=streams,
        payload_bytes=end.sum_received.bytes,
        elapsed_ns=round(end.sum_received.seconds * 1e9),
        retransmits=end.sum_sent.retransmits,
        dropped_packets=0,
        tool="iperf3",
    )


def measure_load(link: Link, streams: int, *, warm_up_s: int, span_s: int, iperf: str | None) -> Load:
    """Take one sample.

    Args:
        link: the link. It must carry no other traffic meanwhile.
        streams: number of streams.
        warm_up_s: whole seconds before the sample.
        span_s: whole seconds of the sample.
        iperf: path of iperf3, or None if it is not installed.
    """
    before, cpu_s = link.counts(), _cpu_s(link)
    if iperf is not None:
        load = _by_iperf(link, streams, warm_up_s, span_s, iperf)
    else:
        load = _by_sockets(link, streams, warm_up_s, span_s)
    after = link.counts()
    dropped, carried = (sum(of(after)) - sum(of(before)) for of in (_dropped, _wire_bytes))
    cpu_s = _cpu_s(link) - cpu_s
    return replace(
        load, dropped_packets=dropped, link_cpu_s_per_gb=cpu_s * 1e9 / carried if cpu_s > 0 and carried else None
    )


def _dropped(counts: LinkCounts) -> tuple[int, int]:
    return counts.to_training.dropped_packets, counts.to_storage.dropped_packets


def _wire_bytes(counts: LinkCounts) -> tuple[int, int]:
    return counts.to_training.wire_bytes, counts.to_storage.wire_bytes


def _cpu_s(link: Link) -> float:
    """Return the processor time of the link's processes so far; they live as long as the link."""
    times = [psutil.Process(pid).cpu_times() for pid in link.pids]
    return sum(one.user + one.system for one in times)


def _by_iperf(link: Link, streams: int, warm_up_s: int, span_s: int, iperf: str) -> Load:
    # With -R the server sends, as a daemon does. Its count of retransmits comes with the results it
    # hands over at the end.
    said = run_iperf(
        iperf,
        ["-P", str(streams), "-R"],
        server=link.storage,
        client=link.training,
        warm_up_s=warm_up_s,
        span_s=span_s,
        offer=link.offer,
    )
    return read_iperf(said, streams)


def _by_sockets(link: Link, streams: int, warm_up_s: int, span_s: int) -> Load:
    sends = _child(link.storage, "send", SendOrder(host=link.storage.listen, streams=streams))
    with Child("the sender of streams", sends) as sender:
        port = sender.hear(Sending, _ANSWER_S).port
        link.offer([port])
        order = ReceiveOrder(
            host=link.storage.address,
            port=port,
            streams=streams,
            warm_up_ns=warm_up_s * 1_000_000_000,
            span_ns=span_s * 1_000_000_000,
        )
        with Child("the receiver of streams", _child(link.training, "receive", order)) as receiver:
            arrived = receiver.hear(Arrived, warm_up_s + span_s + _ANSWER_S)
            receiver.rest(_ANSWER_S)
        sent = sender.hear(Sent, _ANSWER_S)
        sender.rest(_ANSWER_S)
    return Load(
        streams=streams,
        payload_bytes=arrived.payload_bytes,
        elapsed_ns=arrived.elapsed_ns,
        retransmits=sent.retransmits,
        dropped_packets=0,
        tool="sockets",
    )


def _child(end: LinkEnd, role: str, order: msgspec.Struct) -> list[str]:
    return end.command([sys.executable, "-m", _STREAMS, role, msgspec.json.encode(order).decode()])
