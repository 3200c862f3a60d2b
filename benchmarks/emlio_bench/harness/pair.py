"""Code shared by subjects with one sender and one receiver."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import zmq

from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.scenario import Window
from emlio_bench.processes.child import Child, say, start_worker

__all__ = ["ANSWER_S", "Endpoint", "ReceiveOrder", "bound_push", "connected_pull", "hear_sample", "measure_pair"]

ANSWER_S: Final = 30.0
"""The longest time that a process may stay silent."""

_HIGH_WATER_MARK: Final = 16
"""Messages queued on either side, as in the daemon and in the paper's system."""


class Endpoint(msgspec.Struct, frozen=True):
    """The address of a sender, reported once it accepts connections."""

    endpoint: str


class ReceiveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a receiver."""

    endpoint: str
    sender_pid: int
    window: Window


def measure_pair(subject: str, send_order: Any, window: Window) -> Measurement:
    """Take one sample with the roles SUBJECT-send and SUBJECT-receive."""
    with start_worker(f"{subject}-send", send_order) as sender:
        endpoint = sender.hear(Endpoint, ANSWER_S).endpoint
        order = ReceiveOrder(endpoint=endpoint, sender_pid=sender.pid, window=window)
        with start_worker(f"{subject}-receive", order) as receiver:
            return hear_sample(receiver, window)


def hear_sample(receiver: Child, window: Window) -> Measurement:
    """Return the receiver's measurement after the receiver has ended without an error."""
    sample = receiver.hear(Measurement, window.most_ns / 1e9 + ANSWER_S)
    receiver.rest(ANSWER_S)
    return sample


@contextmanager
def bound_push() -> Generator["zmq.Socket[bytes]", None, None]:
    """Bind a PUSH socket to a free port, and report its address on standard output."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        say(Endpoint(f"tcp://127.0.0.1:{port}"))
        yield socket


@contextmanager
def connected_pull(endpoint: str) -> Generator["zmq.Socket[bytes]", None, None]:
    """Connect a PULL socket that raises if nothing arrives for `ANSWER_S` seconds."""
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVTIMEO, round(ANSWER_S * 1000))
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(endpoint)
        yield socket
