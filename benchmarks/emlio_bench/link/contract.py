"""The interface between a link and the code that uses it.

Covers: the kinds of links, one end, the operations of every link. Does not cover: the links, one
file each (emlio_bench.link.kinds.emulated, emlio_bench.link.kinds.relay); choosing a link
(emlio_bench.link.choice).
"""

import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, Self

from emlio.errors import TransportError
from emlio_bench.link.namespaces.devices import enter_namespace
from emlio_bench.link.process.channel import LinkCounts
from emlio_bench.link.shaping.held import Held
from emlio_bench.link.spec import LinkSpec

__all__ = ["ENTER", "MADE_KINDS", "Link", "LinkEnd", "LinkKind"]

ENTER: Final = "nsenter"
"""The program that runs another program in a namespace."""


class LinkKind(StrEnum):
    """The implementation of a link. Results name it."""

    NETEM = "netem"
    """Two namespaces with a pair of devices between them. The kernel delays packets."""

    EMULATED = "emulated"
    """Two namespaces, and a process of this package that delays packets."""

    RELAY = "relay"
    """No namespaces: a process delays bytes on loopback. TCP itself does not see the round trip."""

    REAL = "real"
    """Two hosts and the network between them, which is there already. Nothing is delayed."""


MADE_KINDS: Final = tuple(kind for kind in LinkKind if kind is not LinkKind.REAL)
"""The kinds that this machine can make alone, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEnd:
    """One end of a link.

    Attributes:
        address: IPv4 address of this end, as the other end reaches it.
        listen: address at which a server at this end listens. It differs from `address` only behind
            a relay.
        namespace: file of the end's network namespace, valid while the link is up; None if the end
            has no namespace of its own.
    """

    address: str
    listen: str
    namespace: Path | None

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs a program at this end.

        The program keeps its process id and sees the same files as any other process.
        """
        return list(argv) if self.namespace is None else [ENTER, f"--net={self.namespace}", "--", *argv]

    def enter(self) -> None:
        """Move the calling thread, and no other, to this end.

        Processes that the thread starts and sockets that it makes are at this end too.
        """
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
        """Make a TCP socket at this end. Any thread of this process may use it."""
        # A socket stays in the namespace it was made in. A thread enters a namespace on its own, so
        # a short-lived thread makes the socket.
        with ThreadPoolExecutor(1, "emlio-link-end") as thread:
            return thread.submit(self._open).result()

    def _open(self) -> socket.socket:
        self.enter()
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


class Link(Protocol):
    """Two ends and the path between them, for the duration of a `with` block."""

    @property
    def spec(self) -> LinkSpec:
        """The specification of the link."""
        ...

    @property
    def kind(self) -> LinkKind:
        """The implementation of the link."""
        ...

    @property
    def storage(self) -> LinkEnd:
        """The end for a daemon."""
        ...

    @property
    def training(self) -> LinkEnd:
        """The end for ranks."""
        ...

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the link's processes, so that their processor time can be counted separately."""
        ...

    @property
    def own_ns(self) -> int:
        """The time that the link itself adds to a round trip; 0 if it was not measured.

        The link delays packets for that much less.
        """
        ...

    @property
    def moved_by(self) -> str:
        """The mover of the packets, for results: the kernel, C, or Python and the reason why not C."""
        ...

    def offer(self, ports: Sequence[int]) -> None:
        """Make ports of servers at the storage end reachable from the training end.

        Only a relay needs this. Through other links all ports are reachable.
        """
        ...

    def counts(self) -> LinkCounts:
        """Return the counts of the traffic so far."""
        ...

    def held(self) -> Held:
        """Return the bytes in transit over time, since the previous call.

        The first call returns nothing and starts the recording.
        """
        ...

    def close(self) -> None:
        """Shut the link down. A second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
