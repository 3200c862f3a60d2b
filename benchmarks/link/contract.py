"""The seam between a link and those who use it.

Covers: the kinds of links, one end, what every link offers. Does not cover: the links, one file each
(emlio.benchmarks.link.emulated, emlio.benchmarks.link.relay); choosing one (emlio.benchmarks.link.choice).
"""

import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from emlio.benchmarks.link.devices import enter_namespace
from emlio.benchmarks.link.held import Held
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.link.talk import LinkCounts
from emlio.errors import TransportError

__all__ = ["ENTER", "Link", "LinkEnd", "LinkKind"]

ENTER: Final = "nsenter"
"""The program that runs another one in a namespace."""


class LinkKind(StrEnum):
    """How the way between the two ends is made; results say which it was."""

    NETEM = "netem"
    """Two namespaces, a pair of devices between them, the kernel's own delay."""

    EMULATED = "emulated"
    """Two namespaces, and a process of ours that holds packets back."""

    RELAY = "relay"
    """No namespaces: a process that holds bytes back on loopback. TCP itself does not see the distance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEnd:
    """One side of a link.

    Attributes:
        address: its IPv4 address, which the other side reaches.
        listen: the address at which a server on this side listens; another one than `address` only behind a relay.
        namespace: file of its network namespace, good while the link is up; None where it has none of its own.
    """

    address: str
    listen: str
    namespace: Path | None

    def command(self, argv: Sequence[str]) -> list[str]:
        """How a program is run at this end. It keeps its process id, and sees the same files as any other."""
        return list(argv) if self.namespace is None else [ENTER, f"--net={self.namespace}", "--", *argv]

    def enter(self) -> None:
        """Move the calling thread, and no other, to this end: processes that it starts and sockets that it makes are there."""
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
        """A TCP socket at this end, for this process; which thread uses it makes no difference."""
        # A socket stays in the namespace it was made in. Threads change theirs one by one, so one that ends here may.
        with ThreadPoolExecutor(1, "emlio-link-end") as thread:
            return thread.submit(self._open).result()

    def _open(self) -> socket.socket:
        self.enter()
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


class Link(Protocol):
    """Two ends and the way between them, for as long as a `with` block."""

    @property
    def spec(self) -> LinkSpec:
        """What was asked for."""
        ...

    @property
    def kind(self) -> LinkKind:
        """How it is made."""
        ...

    @property
    def storage(self) -> LinkEnd:
        """Where a daemon belongs."""
        ...

    @property
    def training(self) -> LinkEnd:
        """Where ranks belong."""
        ...

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the processes that are the link, for those who count their processor time apart."""
        ...

    @property
    def own_ns(self) -> int:
        """What it takes of a round trip itself, and holds packets back for less; 0 where nobody found out."""
        ...

    def offer(self, ports: Sequence[int]) -> None:
        """Let these ports of servers at the storage end be reached from the training end. All are, except through a relay."""
        ...

    def counts(self) -> LinkCounts:
        """What went over it so far."""
        ...

    def held(self) -> Held:
        """What was on its way since this was asked before. The first to ask hears nothing, and from then on it is gauged."""
        ...

    def close(self) -> None:
        """Take it down. Closing again does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
