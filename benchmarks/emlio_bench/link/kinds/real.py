"""The network between two hosts, as one of them sees it: nothing is made, delayed or counted.

Covers: its two ends, in the shape of every link. Does not cover: measuring it, programs at the
other end (emlio_bench.race.storage).
"""

from collections.abc import Sequence
from typing import Final, Self

from emlio_bench.link.contract import LinkEnd, LinkKind
from emlio_bench.link.process.channel import LineCounts, LinkCounts
from emlio_bench.link.shaping.held import Held
from emlio_bench.link.spec import LinkSpec

__all__ = ["NETWORK", "RealLink"]

NETWORK: Final = "the network that is there"


class RealLink:
    """Two hosts and their network. See `Link`.

    Attributes:
        spec: specification with the round trip that was measured.
        kind: always `LinkKind.REAL`.
        storage: the storage host.
        training: the training host.
        pids: always empty, since no process moves the packets.
        own_ns: always 0.
        moved_by: always the network.
    """

    def __init__(self, spec: LinkSpec, *, storage: LinkEnd, training: LinkEnd) -> None:
        """Describe the network.

        Args:
            spec: its round trip, as measured.
            storage: the storage host.
            training: the training host.
        """
        self.spec = spec
        self.kind = LinkKind.REAL
        self.storage = storage
        self.training = training
        self.pids: tuple[int, ...] = ()
        self.own_ns = 0
        self.moved_by = NETWORK

    def offer(self, ports: Sequence[int]) -> None:
        """See `Link`. There is nothing to do: the ports must be open in firewalls."""

    def counts(self) -> LinkCounts:
        """See `Link`. Nothing is counted."""
        return LinkCounts(to_training=LineCounts(), to_storage=LineCounts())

    def held(self) -> Held:
        """See `Link`. Nothing is recorded."""
        return Held()

    def close(self) -> None:
        """See `Link`. There is nothing to end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
