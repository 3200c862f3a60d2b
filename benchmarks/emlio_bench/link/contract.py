"""A link between two ends: its kinds, its ends, what it counts, and the link that is there already."""

import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from emlio.errors import ConfigError, TransportError
from emlio_bench.link.devices import enter_namespace

__all__ = [
    "ENTER",
    "HERE",
    "MADE_KINDS",
    "NETWORK",
    "STRETCH_NS",
    "Held",
    "LineCounts",
    "Link",
    "LinkCounts",
    "LinkEnd",
    "LinkKind",
    "LinkSpec",
    "Stretch",
]

_FASTEST_BYTES_PER_S: Final = 1_250_000_000
"""A line without a rate is taken to carry at most this."""
_FASTEST_TIMES: Final = 4
_LEAST_HELD_BYTES: Final = 16 << 20
_LEAST_ROUTER_BYTES: Final = 1 << 20
_LONGEST_PACKET_BYTES: Final = 65_535 + 10
_LONGEST_RTT_NS: Final = 10_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """Round trip, rate and buffers of a link.

    Attributes:
        rtt_ns: round trip; each direction has half of it.
        rate_bytes_per_s: bytes on the wire in a second, in each direction; None for no limit.
        queue_bytes: bytes a direction holds at most; None for what a good router would hold.
        tuned: whether TCP may have 64 MB for a connection at both ends.
    """

    rtt_ns: int
    rate_bytes_per_s: int | None = None
    queue_bytes: int | None = None
    tuned: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rtt_ns <= _LONGEST_RTT_NS:
            raise ConfigError(f"rtt_ns must be in [0, {_LONGEST_RTT_NS}], got {self.rtt_ns}")
        if self.rate_bytes_per_s is not None and self.rate_bytes_per_s <= 0:
            raise ConfigError(f"rate_bytes_per_s must be above 0, got {self.rate_bytes_per_s}")
        if self.queue_bytes is not None and self.queue_bytes < _LONGEST_PACKET_BYTES:
            raise ConfigError(
                f"queue_bytes must hold one packet of {_LONGEST_PACKET_BYTES} bytes, got {self.queue_bytes}"
            )

    @property
    def delay_ns(self) -> int:
        """Delay of one direction."""
        return self.rtt_ns // 2

    @property
    def held_bytes(self) -> int:
        """Bytes that one direction holds at most: on their way, and in a router's buffer of a round trip."""
        if self.queue_bytes is not None:
            return self.queue_bytes
        if self.rate_bytes_per_s is None:
            return max(_FASTEST_TIMES * _FASTEST_BYTES_PER_S * self.rtt_ns // 1_000_000_000, _LEAST_HELD_BYTES)
        on_its_way = self.rate_bytes_per_s * self.delay_ns // 1_000_000_000
        return on_its_way + max(self.rate_bytes_per_s * self.rtt_ns // 1_000_000_000, _LEAST_ROUTER_BYTES)


ENTER: Final = "nsenter"
NETWORK: Final = "the network that is there"
STRETCH_NS: Final = 20_000_000
"""The length of a stretch, the same in forward.c."""


class LinkKind(StrEnum):
    """The ways to have a link."""

    NETEM = "netem"
    EMULATED = "emulated"
    REAL = "real"


MADE_KINDS: Final = tuple(kind for kind in LinkKind if kind is not LinkKind.REAL)
"""The kinds that can be made, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEnd:
    """One end of a link.

    Attributes:
        address: address at which the other end reaches it.
        listen: address at which its servers listen.
        namespace: its network namespace; None for this process's own.
    """

    address: str
    listen: str
    namespace: Path | None

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs a program at this end."""
        return list(argv) if self.namespace is None else [ENTER, f"--net={self.namespace}", "--", *argv]

    def enter(self) -> None:
        """Move the calling thread to this end."""
        if self.namespace is None:
            return
        try:
            namespace = os.open(self.namespace, os.O_RDONLY | os.O_CLOEXEC)
            try:
                enter_namespace(namespace)
            finally:
                os.close(namespace)
        except OSError as error:
            raise TransportError(f"{self.address} must be entered while the link is up: {error}") from error

    def make_socket(self) -> socket.socket:
        """Return a new TCP socket at this end."""
        # A socket stays in the namespace it was made in. A thread enters a namespace on its own, so
        # a short-lived thread makes the socket.
        with ThreadPoolExecutor(1, "emlio-link-end") as thread:
            return thread.submit(self._open).result()

    def _open(self) -> socket.socket:
        self.enter()
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


HERE: Final = LinkEnd(address="127.0.0.1", listen="127.0.0.1", namespace=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    """The traffic of one direction since it began.

    Attributes:
        packets: packets that were accepted.
        wire_bytes: their bytes on a wire, with a header for each segment.
        overflowed_packets: packets that found the line full.
        unread_packets: packets that the device dropped before they were read.
        refused_packets: packets that the other device did not accept.
        latest_ns: the longest delay beyond the one asked for.
    """

    packets: int = 0
    wire_bytes: int = 0
    overflowed_packets: int = 0
    unread_packets: int = 0
    refused_packets: int = 0
    latest_ns: int = 0

    @property
    def dropped_packets(self) -> int:
        """All packets that did not arrive."""
        return self.overflowed_packets + self.unread_packets + self.refused_packets


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounts:
    """Both directions."""

    to_training: LineCounts = LineCounts()
    to_storage: LineCounts = LineCounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Bytes that a line held during 20 ms: mean and most; `number` counts from the clock's zero."""

    number: int
    mean_bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The stretches of both directions."""

    to_training: tuple[Stretch, ...] = ()
    to_storage: tuple[Stretch, ...] = ()


class Link:
    """A network that is there already; made links extend it (emlio_bench.link.emulated).

    Attributes:
        spec: what it is to be like.
        kind: its kind.
        storage: end of the daemons.
        training: end of the ranks.
        pids: processes that carry its packets.
        own_ns: time of its own by which its delay was shortened.
        moved_by: what carries its packets.
    """

    kind = LinkKind.REAL
    moved_by = NETWORK
    own_ns = 0
    pids: tuple[int, ...] = ()

    def __init__(self, spec: LinkSpec, *, storage: LinkEnd = HERE, training: LinkEnd = HERE) -> None:
        self.spec = spec
        self.storage = storage
        self.training = training

    def counts(self) -> LinkCounts:
        """Return what it has carried; zeros where this is not known."""
        return LinkCounts()

    def held(self) -> Held:
        """Return the stretches since the last call; the first call starts the recording."""
        return Held()

    def close(self) -> None:
        """End it; programs at its ends are killed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
