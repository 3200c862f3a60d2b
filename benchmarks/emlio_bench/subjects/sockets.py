"""Plain TCP sockets over loopback: the limit if iperf3 is not installed.

Like iperf3 they use the same memory all the time, so they are an upper bound.

Covers: a sender that repeats one mebibyte and a receiver that overwrites another. Does not cover:
records.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio_bench.harness.meter import Measurement, Meter
from emlio_bench.harness.pair import ANSWER_S, Endpoint, ReceiveOrder, measure_pair
from emlio_bench.harness.scenario import Scenario, Window
from emlio_bench.processes.child import say

__all__ = ["Sockets", "receive", "send"]

_BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """See `Subject`."""

    name: str = "sockets"

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """See `Subject`."""
        return measure_pair("sockets", None, window)


def send(_: bytes) -> None:
    """Send to the first client until it disconnects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        say(Endpoint(f"127.0.0.1:{listener.getsockname()[1]}"))
        connection, _address = listener.accept()
        block = os.urandom(_BLOCK_BYTES)
        with connection:
            while True:
                try:
                    connection.sendall(block)
                except (BrokenPipeError, ConnectionResetError):
                    return


def receive(orders: bytes) -> None:
    """Receive for one window, and report the measurement."""
    order = msgspec.json.decode(orders, type=ReceiveOrder)
    meter = Meter(order.window, order.sender_pid)
    block = bytearray(_BLOCK_BYTES)
    host, _, port = order.endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), ANSWER_S) as connection:
        while not meter.add(connection.recv_into(block), 0):
            continue
        say(meter.measurement())
