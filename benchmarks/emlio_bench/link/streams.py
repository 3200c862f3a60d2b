"""TCP streams without iperf3: python -m emlio_bench.link.streams send|receive ORDERS.

Covers: a process that sends the same mebibyte over all streams, and a process that receives into
one buffer. Does not cover: starting them (emlio_bench.link.throughput).
"""

import contextlib
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from emlio_bench.processes.child import say

__all__ = ["Arrived", "ReceiveOrder", "SendOrder", "Sending", "Sent", "main"]

_BLOCK_BYTES: Final = 1 << 20
_ANSWER_S: Final = 30.0
_TOTAL_RETRANSMITS: Final = struct.Struct("=100xI")
"""The position of the total retransmits in the kernel's struct tcp_info, since Linux 2.6.13."""


class SendOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a sender: its address and the number of streams."""

    host: str
    streams: int


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """The port of a sender."""

    port: int


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sender."""

    retransmits: int


class ReceiveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a receiver: the sender's address, the streams, and the times."""

    host: str
    port: int
    streams: int
    warm_up_ns: int
    span_ns: int


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a receiver."""

    payload_bytes: int
    elapsed_ns: int


def _send(orders: str) -> None:
    order = msgspec.json.decode(orders, type=SendOrder)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((order.host, 0), backlog=order.streams))
        listener.settimeout(_ANSWER_S)
        say(Sending(port=listener.getsockname()[1]))
        streams = [stack.enter_context(listener.accept()[0]) for _ in range(order.streams)]
        say(Sent(retransmits=_send_all(streams)))


def _send_all(streams: Sequence[socket.socket]) -> int:
    """Send until the receiver has closed all streams; return the number of retransmits."""
    block = os.urandom(_BLOCK_BYTES)
    retransmits: dict[socket.socket, int] = {}
    for stream in streams:
        stream.setblocking(False)
    while len(retransmits) < len(streams):
        open_ones = [stream for stream in streams if stream not in retransmits]
        for stream in select.select([], open_ones, [], _ANSWER_S)[1]:
            told = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANSMITS.size)
            try:
                stream.send(block)
            except BlockingIOError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                retransmits[stream] = int(_TOTAL_RETRANSMITS.unpack(told)[0])
    return sum(retransmits.values())


def _receive(orders: str) -> None:
    order = msgspec.json.decode(orders, type=ReceiveOrder)
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(socket.create_connection((order.host, order.port), _ANSWER_S))
            for _ in range(order.streams)
        ]
        _count(streams, time.monotonic_ns() + order.warm_up_ns)
        begun_ns = time.monotonic_ns()
        payload_bytes = _count(streams, begun_ns + order.span_ns)
        say(Arrived(payload_bytes=payload_bytes, elapsed_ns=time.monotonic_ns() - begun_ns))


def _count(streams: Sequence[socket.socket], until_ns: int) -> int:
    block = bytearray(_BLOCK_BYTES)
    total = 0
    while (left_ns := until_ns - time.monotonic_ns()) > 0:
        for stream in select.select(streams, [], [], left_ns / 1e9)[0]:
            total += stream.recv_into(block)
    return total


def main(role: str, orders: str) -> None:
    """Run one side."""
    {"send": _send, "receive": _receive}[role](orders)


if __name__ == "__main__":
    main(*sys.argv[1:])
