"""What a link's process is told by the one that started it, and what it says to it.

Covers: the values, sums of them. Does not cover: what is counted (emlio.benchmarks.link.forwarder, .netem_holder, .relaying).
"""

from dataclasses import dataclass

from emlio.benchmarks.link.spec import LinkSpec

__all__ = ["LineCounts", "LinkCounts", "LinkOrder", "Started", "add_counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOrder:
    """What a process that makes namespaces is told.

    Attributes:
        spec: of the link.
        place: which of the links that share their training end it is.
        training: file of the namespace of the training end, made by the link at place 0; None where this one makes it.
    """

    spec: LinkSpec
    place: int = 0
    training: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The first that it says.

    Attributes:
        storage_namespace: number of its descriptor of the storage side's namespace; -1 where there is none.
        training_namespace: the same of the training side's.
        own_ns: what the link itself takes of a round trip, which it holds packets back for less.
        problem: why there is no link, or None.
    """

    storage_namespace: int = -1
    training_namespace: int = -1
    own_ns: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    """What became of one direction's packets. A packet may stand for many segments.

    Attributes:
        packets: taken, those with lost segments in the pieces that remained. Of a relay: pieces of any size.
        wire_bytes: of them, each segment with its headers. Of a relay: without headers, which it does not see.
        lost_segments: by the loss that was asked for.
        overflowed_packets: beyond what the direction holds.
        unread_packets: dropped by the kernel before the forwarder read them: it was too slow.
        refused_packets: that the receiving kernel did not take.
        latest_ns: how long after its time a packet was handed over at worst; 0 where the kernel does it and does not say.
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
        """All that did not arrive and that nobody asked to be lost."""
        return self.overflowed_packets + self.unread_packets + self.refused_packets


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounts:
    """Both directions, named after where they lead."""

    to_training: LineCounts
    to_storage: LineCounts


def add_counts(one: LineCounts, other: LineCounts) -> LineCounts:
    """Of two parts of one direction."""
    return LineCounts(
        packets=one.packets + other.packets,
        wire_bytes=one.wire_bytes + other.wire_bytes,
        lost_segments=one.lost_segments + other.lost_segments,
        overflowed_packets=one.overflowed_packets + other.overflowed_packets,
        unread_packets=one.unread_packets + other.unread_packets,
        refused_packets=one.refused_packets + other.refused_packets,
        latest_ns=max(one.latest_ns, other.latest_ns),
    )
