"""The round trip of a link, measured over TCP."""

import socket
import statistics
import time
from typing import Final

from emlio.errors import TransportError
from emlio_bench.link.contract import Link

__all__ = ["measure_rtt_ns", "ping_ns"]

_ANSWER_S: Final = 30.0
_PINGS: Final = 21


def ping_ns(link: Link, pings: int) -> tuple[int, ...]:
    """Measure pings, one after the other, and return their durations.

    One thread plays both sides, so that the wake-up of another thread is not measured.

    Args:
        link: the link. It must carry no other traffic meanwhile.
        pings: number of pings.
    """
    try:
        with link.storage.make_socket() as listener, link.training.make_socket() as near:
            for one in (listener, near):
                one.settimeout(_ANSWER_S)
            listener.bind((link.storage.listen, 0))
            listener.listen(1)
            port = listener.getsockname()[1]
            near.connect((link.storage.address, port))
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far, _ = listener.accept()
            with far:
                far.settimeout(_ANSWER_S)
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _ping(near, far)
                return tuple(_ping(near, far) for _ in range(pings))
    except OSError as error:
        raise TransportError(f"a byte must come back over the link: {error}") from error


def measure_rtt_ns(link: Link, pings: int = _PINGS) -> int:
    """Return the median of some pings. See `ping_ns`."""
    return round(statistics.median(ping_ns(link, pings)))


def _ping(near: socket.socket, far: socket.socket) -> int:
    begun_ns = time.monotonic_ns()
    near.sendall(b"?")
    far.sendall(far.recv(1))
    near.recv(1)
    return time.monotonic_ns() - begun_ns
