"""A link between two network namespaces, for as long as a `with` block.

Covers: starting and ending it, its two ends, why there can be none here, its round trip as TCP finds it. Does not cover: moving
packets (emlio.benchmarks.link.forwarder).
"""

import os
import shutil
import signal
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from emlio.benchmarks.link.devices import TUN_PATH, enter_namespace
from emlio.benchmarks.link.forwarder import STORAGE_ADDRESS, TRAINING_ADDRESS, LinkCounts, Started
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.processes import Child
from emlio.errors import TransportError

__all__ = ["EmulatedLink", "LinkEnd", "measure_rtt_ns", "why_not"]

_ENTER: Final = "nsenter"
_ANSWER_S: Final = 30.0
_PINGS: Final = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEnd:
    """One side of a link.

    Attributes:
        address: its IPv4 address, which the other side reaches.
        namespace: file of its network namespace, good while the link is up.
    """

    address: str
    namespace: Path

    def command(self, argv: Sequence[str]) -> list[str]:
        """How a program is run at this end. It keeps its process id, and sees the same files as any other."""
        return [_ENTER, f"--net={self.namespace}", "--", *argv]

    def make_socket(self) -> socket.socket:
        """A TCP socket at this end, for this process; which thread uses it makes no difference."""
        # A socket stays in the namespace it was made in. Threads change theirs one by one, so one that ends here may.
        with ThreadPoolExecutor(1, "emlio-link-end") as thread:
            return thread.submit(self._open).result()

    def _open(self) -> socket.socket:
        try:
            namespace = os.open(self.namespace, os.O_RDONLY | os.O_CLOEXEC)
            try:
                enter_namespace(namespace)
            finally:
                os.close(namespace)
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:
            raise TransportError(f"a socket at {self.address} must be made while the link is up: {error}") from error


class EmulatedLink:
    """Two network namespaces and the path between them. All of it ends with the `with` block, or with this process.

    Attributes:
        spec: what was asked for.
        storage: the end where a daemon belongs.
        training: the end where ranks belong.
    """

    def __init__(self, spec: LinkSpec) -> None:
        """Bring it up.

        Args:
            spec: what is wanted.
        """
        self.spec = spec
        orders = msgspec.json.encode(spec).decode()
        self._ending = ExitStack()
        self._child = self._ending.enter_context(
            Child("the link", [sys.executable, "-m", "emlio.benchmarks.link.forwarder", orders])
        )
        try:
            started = self._child.hear(Started, _ANSWER_S)
            if started.problem is not None:
                raise TransportError(f"a link needs network namespaces and a TUN device: {started.problem}")
        except BaseException:
            self.close()
            raise
        descriptors = Path(f"/proc/{self._child.pid}/fd")
        self.storage = LinkEnd(address=STORAGE_ADDRESS, namespace=descriptors / str(started.storage_namespace))
        self.training = LinkEnd(address=TRAINING_ADDRESS, namespace=descriptors / str(started.training_namespace))

    @property
    def pid(self) -> int:
        """Of the process that moves the packets, for those who count its processor time apart."""
        return self._child.pid

    def counts(self) -> LinkCounts:
        """What became of the packets so far."""
        if not self._child.running:
            raise TransportError("a link must be up to be asked for its counts, this one has ended")
        os.kill(self._child.pid, signal.SIGUSR1)
        return self._child.hear(LinkCounts, _ANSWER_S)

    def close(self) -> None:
        """Take it down. Processes still in its namespaces live on without a network."""
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def why_not() -> str | None:
    """Why this process can make no link, or None when it can. Makes one, unless the reason is found without."""
    if not os.path.exists(TUN_PATH):
        return f"needs {TUN_PATH}, which does not exist"
    if not os.access(TUN_PATH, os.R_OK | os.W_OK):
        return f"needs to read and write {TUN_PATH}"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    if shutil.which(_ENTER) is None:
        return f"needs the program {_ENTER}, of util-linux"
    try:
        EmulatedLink(LinkSpec(rtt_ns=0)).close()
    except TransportError as error:
        return str(error)
    return None


def measure_rtt_ns(link: EmulatedLink, pings: int = _PINGS) -> int:
    """The median round trip of one byte over an open TCP connection.

    One thread plays both sides, so that waking another is not measured.

    Args:
        link: which nobody else should use meanwhile.
        pings: how many.
    """
    try:
        with link.storage.make_socket() as listener, link.training.make_socket() as near:
            for one in (listener, near):
                one.settimeout(_ANSWER_S)
            listener.bind((link.storage.address, 0))
            listener.listen(1)
            near.connect(listener.getsockname())
            far, _ = listener.accept()
            with far:
                far.settimeout(_ANSWER_S)
                for one in (far, near):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _ping(near, far)
                return round(statistics.median(_ping(near, far) for _ in range(pings)))
    except OSError as error:
        raise TransportError(f"a byte must come back over the link: {error}") from error


def _ping(near: socket.socket, far: socket.socket) -> int:
    begun_ns = time.monotonic_ns()
    near.sendall(b"?")
    far.sendall(far.recv(1))
    near.recv(1)
    return time.monotonic_ns() - begun_ns
