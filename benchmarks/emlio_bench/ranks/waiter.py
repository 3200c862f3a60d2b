"""Waiting for thousands of ZeroMQ sockets.

`zmq.Poller` checks each of its sockets in turn. The kernel's epoll reports only the sockets that
are ready.

Covers: finding readable sockets. Does not cover: reading (emlio_bench.ranks.light_rank).
"""

import select
from collections.abc import Callable
from types import TracebackType
from typing import Self

import zmq

__all__ = ["Waiter"]


class Waiter:
    """Waits for sockets and calls the functions that read them. Used by one thread.

    The descriptor of a ZeroMQ socket reports each change only once. A function must therefore read
    until nothing is left. It must also read again after each send, because a send may consume the
    notice.
    """

    def __init__(self) -> None:
        """Create a waiter without sockets."""
        self._epoll = select.epoll()
        self._actions: dict[int, Callable[[], None]] = {}

    def add(self, socket: "zmq.Socket[bytes]", action: Callable[[], None]) -> None:
        """Call `action` whenever this socket may be readable."""
        descriptor = int(socket.getsockopt(zmq.FD))
        self._actions[descriptor] = action
        self._epoll.register(descriptor, select.EPOLLIN)

    def forget(self, socket: "zmq.Socket[bytes]") -> None:
        """Stop waiting for a socket. To be called before the socket is closed."""
        descriptor = int(socket.getsockopt(zmq.FD))
        self._epoll.unregister(descriptor)
        del self._actions[descriptor]

    def wait(self, timeout_s: float) -> None:
        """Wait until sockets may be readable or the time is up, and call their actions."""
        for descriptor, _ in self._epoll.poll(timeout_s):
            if (action := self._actions.get(descriptor)) is not None:
                action()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._epoll.close()
