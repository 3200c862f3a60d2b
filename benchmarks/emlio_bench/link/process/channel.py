"""Messages between a link's process and the process that started it.

Covers: the values, sums of them. Does not cover: counting (emlio_bench.link.kinds).
"""

from dataclasses import dataclass

from emlio_bench.link.spec import LinkSpec

__all__ = ["LineCounts", "LinkCounts", "LinkOrder", "Started", "add_counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOrder:
    """The configuration of a process that makes namespaces.

    Attributes:
        spec: specification of the link.
        place: index of the link among those that share its training end.
        training: file of the network namespace of the training end, made by the link at place 0;
            None if this process makes it.
    """

    spec: LinkSpec
    place: int = 0
    training: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The first message of a link's process.

    Attributes:
        storage_namespace: number of the process's file descriptor for the storage side's namespace;
            -1 if there is none.
        training_namespace: number of its file descriptor for the training side's namespace; -1 if
            there is none.
        own_ns: time that the link itself adds to a round trip; the link delays packets for that
            much less.
        moved_by: what moves the packets: the kernel, C, or Python and the reason why not C.
        problem: reason why there is no link, or None.
    """

    storage_namespace: int = -1
    training_namespace: int = -1
    own_ns: int = 0
    moved_by: str = "the kernel"
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    """Counts of the packets of one direction. A packet may stand for many segments.

    Attributes:
        packets: packets accepted. Of a packet with lost segments, each remaining piece counts. A
            relay counts pieces of any size.
        wire_bytes: bytes of these packets, each segment with its headers. A relay counts no
            headers, since it does not see them.
        lost_segments: segments lost because of the requested loss.
        overflowed_packets: packets dropped because the direction's queue was full.
        unread_packets: packets dropped by the kernel because the forwarder was too slow to read
            them.
        refused_packets: packets that the receiving kernel did not accept.
        latest_ns: greatest delay of a packet beyond its due time; 0 if the kernel delays packets,
            since it does not report this.
    """

    packets: int = 0
    wire_bytes: int = 0
    lost_segments: int = 0
    overflowed_packets: int = 0
    unread_packets: int = 0
    refused_packets: int = 0
    latest_ns: int = 0

    @property
    def dropped_packets(self) -> int:
        """Packets that did not arrive, without those lost on request."""
        return self.overflowed_packets + self.unread_packets + self.refused_packets


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounts:
    """The counts of both directions, named after the end they lead to."""

    to_training: LineCounts
    to_storage: LineCounts


def add_counts(one: LineCounts, other: LineCounts) -> LineCounts:
    """Add the counts of two parts of one direction."""
    return LineCounts(
        packets=one.packets + other.packets,
        wire_bytes=one.wire_bytes + other.wire_bytes,
        lost_segments=one.lost_segments + other.lost_segments,
        overflowed_packets=one.overflowed_packets + other.overflowed_packets,
        unread_packets=one.unread_packets + other.unread_packets,
        refused_packets=one.refused_packets + other.refused_packets,
        latest_ns=max(one.latest_ns, other.latest_ns),
    )
