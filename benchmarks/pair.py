"""What subjects share that are one sender and one receiver: the orders both get, and ZeroMQ's two sockets.

Covers: starting the two processes of a sample, a bound PUSH and a connected PULL with the marks all subjects use. Does not
cover: what is sent.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import zmq

from emlio.benchmarks.meter import Measurement
from emlio.benchmarks.processes import Child, say, start_worker
from emlio.benchmarks.scenario import Window

__all__ = ["ANSWER_S", "Endpoint", "ReceiveOrder", "bound_push", "connected_pull", "hear_sample", "measure_pair"]

ANSWER_S: Final = 30.0
"""The longest a side may be silent."""

_HIGH_WATER_MARK: Final = 16
"""Messages on either side: what the daemon and the paper use."""


class Endpoint(msgspec.Struct, frozen=True):
    """What a sender says once it can be reached."""

    endpoint: str


class ReceiveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver must know."""

    endpoint: str
    sender_pid: int
    window: Window


def measure_pair(subject: str, send_order: Any, window: Window) -> Measurement:
    """One sample of the roles SUBJECT-send and SUBJECT-receive."""
    with start_worker(f"{subject}-send", send_order) as sender:
        endpoint = sender.hear(Endpoint, ANSWER_S).endpoint
        order = ReceiveOrder(endpoint=endpoint, sender_pid=sender.pid, window=window)
        with start_worker(f"{subject}-receive", order) as receiver:
            return hear_sample(receiver, window)


def hear_sample(receiver: Child, window: Window) -> Measurement:
    """What a receiver measured, once it has ended in good order."""
    sample = receiver.hear(Measurement, window.most_ns / 1e9 + ANSWER_S)
    receiver.rest(ANSWER_S)
    return sample


@contextmanager
def bound_push() -> Generator["zmq.Socket[bytes]", None, None]:
    """A PUSH on a free port, which is said aloud."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        say(Endpoint(f"tcp://127.0.0.1:{port}"))
        yield socket


@contextmanager
def connected_pull(endpoint: str) -> Generator["zmq.Socket[bytes]", None, None]:
    """A PULL that raises when nothing comes for too long."""
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVTIMEO, round(ANSWER_S * 1000))
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(endpoint)
        yield socket
