"""Receives from bare PUSH sockets, which deliver nothing."""

import json
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import zmq

__all__ = ["measure"]

_HIGH_WATER_MARK = 4
_SILENT_MS = 30_000


def measure(order: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """See emlio_bench.race.consumers.consume. Slow start is left out, as iperf3 does."""
    options = order["options"]
    with zmq.Context() as context, context.socket(zmq.REQ) as asking:
        asking.setsockopt(zmq.LINGER, 0)
        asking.setsockopt(zmq.RCVTIMEO, _SILENT_MS)
        asking.connect(order["url"])
        for _ in range(order["epochs"]):
            with _pulled(context, _told(asking, b"begin")) as payloads:
                _receive(payloads, float(options["left_out"]))
                begun_ns = time.monotonic_ns()
                payload_bytes = _receive(payloads, float(options["seconds"]))
                ended_ns = time.monotonic_ns()
            _told(asking, b"end")
            yield begun_ns, ended_ns, payload_bytes


def _told(asking: "zmq.Socket[bytes]", word: bytes) -> list[str]:
    """Send a word to emlio_bench.race.servers.push_sender, and return its answer."""
    asking.send(word)
    endpoints: list[str] = json.loads(asking.recv())
    return endpoints


@contextmanager
def _pulled(context: "zmq.Context[zmq.Socket[bytes]]", endpoints: list[str]) -> Generator[Iterator[int], None, None]:
    """Yield an endless iterator over the sizes of payloads from these sockets."""
    with ExitStack() as stack:
        poller = zmq.Poller()
        for endpoint in endpoints:
            socket = stack.enter_context(context.socket(zmq.PULL))
            socket.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(endpoint)
            poller.register(socket, zmq.POLLIN)

        def payloads() -> Iterator[int]:
            while True:
                ready = poller.poll(_SILENT_MS)
                if not ready:
                    raise SystemExit(f"bare sockets must go on sending, they sent nothing for {_SILENT_MS // 1000} s")
                for one, _ in ready:
                    yield len(one.recv(copy=False))

        yield payloads()


def _receive(payloads: Iterator[int], seconds: float) -> int:
    """Receive for a time, and return the number of bytes."""
    until, came = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        came += next(payloads)
    return came
