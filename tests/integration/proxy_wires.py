"""A host with listening ports, the fault-injecting proxy in front of it, and connections through it."""

import socket
from contextlib import ExitStack

from emlio_testing.proxy import FaultProxy, free_ports

HERE, FACE = "127.0.0.1", "127.0.0.2"
LIMIT_S = 20.0
PORTS = 3


class Wires:
    """A host with listening ports, the proxy in front of it, and connections through it."""

    def __init__(self, stack: ExitStack) -> None:
        self.ports = free_ports(PORTS, HERE, FACE)
        self._stack = stack
        self._listeners = [stack.enter_context(socket.create_server((HERE, port))) for port in self.ports]
        self.proxy = stack.enter_context(FaultProxy(target=HERE, ports=self.ports, host=FACE))

    def dial(self, number: int = 1) -> socket.socket:
        """A rank's end alone."""
        rank = self._stack.enter_context(socket.create_connection((FACE, self.ports[number]), timeout=LIMIT_S))
        rank.settimeout(LIMIT_S)
        return rank

    def connect(self, number: int = 1) -> tuple[socket.socket, socket.socket]:
        """The rank's end and the daemon's."""
        rank = self.dial(number)
        listener = self._listeners[number]
        listener.settimeout(LIMIT_S)
        daemon = self._stack.enter_context(listener.accept()[0])
        daemon.settimeout(LIMIT_S)
        return rank, daemon

    def leave(self) -> None:
        """The daemon listens no longer."""
        for listener in self._listeners:
            listener.close()


def take(side: socket.socket, count: int) -> bytes:
    """So many bytes, or fewer where the connection ends before."""
    parts, left = list[bytes](), count
    while left and (part := side.recv(min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def is_silent(side: socket.socket, for_s: float = 0.1) -> bool:
    side.settimeout(for_s)
    try:
        return side.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        side.settimeout(LIMIT_S)


def is_reset(side: socket.socket) -> bool:
    try:
        return side.recv(1) == b"never"
    except ConnectionResetError:
        return True
