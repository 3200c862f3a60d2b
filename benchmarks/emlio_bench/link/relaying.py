"""The process of a relay: python -m emlio_bench.link.relaying ORDERS.

It listens for clients, connects each to the server at the same port, and delays the bytes between
them. It ends on SIGTERM, or when its standard output has no reader any more. SIGUSR1 requests the
counts, SIGUSR2 the bytes held since the previous SIGUSR2.

A client's handshake takes no time here, since the relay is near. The relay therefore delays the
client's first bytes for as long as the handshake would take. One connection may have half of the
bytes in transit that TCP's buffers would allow in a round trip.

Covers: listening, waiting, both lines. Does not cover: one connection
(emlio_bench.link.relayed_connection), starting the process (emlio_bench.link.relay).
"""

import os
import signal
import socket
import sys
import time
from selectors import EVENT_READ, EpollSelector
from typing import Final

import msgspec

from emlio_bench.link.buffers import TUNED_BYTES, most_to_send
from emlio_bench.link.channel import LineCounts, LinkCounts, Started
from emlio_bench.link.held import Held, HeldGauge
from emlio_bench.link.jitter import JitterDraw
from emlio_bench.link.line import Line
from emlio_bench.link.promptness import SAID_FD, be_prompt, hear_signals, ready_until
from emlio_bench.link.relayed_connection import Connection, Parcel, Wires
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import say

__all__ = ["RelayOrder", "main"]

_BACKLOG: Final = 512


class RelayOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a relay.

    Attributes:
        spec: specification of the link.
        listen: address that clients connect to.
        target: address that servers listen at.
        ports: ports of both.
    """

    spec: LinkSpec
    listen: str
    target: str
    ports: tuple[int, ...]


class _Relay:
    """The listeners, lines and connections of a relay."""

    def __init__(self, order: RelayOrder) -> None:
        spec = order.spec
        self._target = order.target
        self._selector = EpollSelector()
        self._gauges: tuple[HeldGauge, ...] = ()
        self._wires = Wires(
            selector=self._selector,
            to_storage=_line(spec, "to-storage"),
            to_training=_line(spec, "to-training"),
            most_bytes=(TUNED_BYTES if spec.tuned else most_to_send()) // 2,
        )
        self._handshakes: Line[tuple[Connection]] = Line(
            delay_ns=spec.rtt_ns, rate_bytes_per_s=None, held_bytes=sys.maxsize
        )
        for port in order.ports:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Some servers listen at all addresses and share their port. A client that connects to
            # this address reaches the relay.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.setblocking(False)
            listener.bind((order.listen, port))
            listener.listen(_BACKLOG)
            self._selector.register(listener, EVENT_READ, port)

    def run(self, signals: int) -> None:
        """Relay until SIGTERM, or until standard output has no reader."""
        # An epoll waits in whole milliseconds, select does not, and select can wait for an epoll.
        watched = [self._selector.fileno(), signals, SAID_FD]
        while True:
            due_ns = self._give()
            self._note()
            ready = ready_until(watched, due_ns)
            if SAID_FD in ready:
                return
            if signals in ready:
                told = os.read(signals, 64)
                if signal.SIGTERM in told:
                    return
                for number in told:
                    say(self._counts() if number == signal.SIGUSR1 else self._held())
            if self._selector.fileno() in ready:
                self._serve()
            self._note()

    def _counts(self) -> LinkCounts:
        return LinkCounts(to_training=_counts(self._wires.to_training), to_storage=_counts(self._wires.to_storage))

    def _held(self) -> Held:
        """Return the bytes held since the previous call. The first call starts the recording."""
        now_ns = time.monotonic_ns()
        if not self._gauges:
            self._gauges = (HeldGauge(now_ns), HeldGauge(now_ns))
            self._note()
        to_training, to_storage = (gauge.take(now_ns) for gauge in self._gauges)
        return Held(to_training=to_training, to_storage=to_storage)

    def _note(self) -> None:
        """Note the bytes that both lines hold now, if they are recorded."""
        for gauge, line in zip(self._gauges, (self._wires.to_training, self._wires.to_storage), strict=False):
            gauge.note(line.held_bytes, time.monotonic_ns())

    def _give(self) -> int | None:
        """Deliver the parcels that are due, and return the time when the next one is due."""
        while (handshake := self._handshakes.give(time.monotonic_ns())) is not None:
            handshake[0].begin(time.monotonic_ns())
        lines = (self._wires.to_storage, self._wires.to_training)
        for line in lines:
            while (parcel := line.give(time.monotonic_ns())) is not None:
                parcel.connection.on_arrival(parcel.step, parcel.data)
        dues = [due for line in (self._handshakes, *lines) if (due := line.next_ns()) is not None]
        return min(dues) if dues else None

    def _serve(self) -> None:
        for key, events in self._selector.select(0):
            side = key.fileobj
            assert isinstance(side, socket.socket)
            if isinstance(key.data, Connection):
                if side.fileno() >= 0:  # otherwise an earlier event has closed it
                    key.data.on_event(side, events, time.monotonic_ns())
                continue
            try:
                client, _ = side.accept()
            except OSError:
                continue  # the client has left before it was accepted
            self._handshakes.take((Connection(client, (self._target, key.data), self._wires),), 0, time.monotonic_ns())


def _line(spec: LinkSpec, name: str) -> Line[Parcel]:
    jitter = JitterDraw(spec.jitter_ns, spec.seed, name).draw if spec.jitter_ns else None
    # The limits of the connections bound it: a relay must not drop bytes that were acknowledged to
    # a client.
    return Line(delay_ns=spec.delay_ns, rate_bytes_per_s=spec.rate_bytes_per_s, held_bytes=sys.maxsize, jitter=jitter)


def _counts(line: Line[Parcel]) -> LineCounts:
    return LineCounts(packets=line.packets, wire_bytes=line.size_bytes, latest_ns=line.latest_ns)


def main(orders: str) -> None:
    """Run the relay until SIGTERM, or until standard output has no reader."""
    order = msgspec.json.decode(orders, type=RelayOrder)
    signals = hear_signals()
    try:
        relay = _Relay(order)
    except OSError as error:
        say(Started(problem=f"{order.listen}, ports {', '.join(map(str, order.ports))}: {error.strerror or error}"))
        return
    be_prompt()
    say(Started())
    relay.run(signals)


if __name__ == "__main__":
    main(*sys.argv[1:])
