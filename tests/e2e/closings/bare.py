"""The shortest way to libzmq's assertion about half-read messages: bare lanes whose two sides close at the same moment.

    python -m tests.e2e.closings.bare --frames 2        ends with SIGABRT within seconds
    python -m tests.e2e.closings.bare --frames 1        never

A process binds PUSH sockets, fills them, and closes them with linger 0; this one has a bare TCP connection to each, reads nothing
of it, and resets all of them at the same moment. Where a message has two frames, and a connection is blocked within the first,
the session must throw away the second; while the socket's end of the pipe is already gone it cannot, and libzmq 4.3.5 gives up
(src/session_base.cpp, `clean_pipes`). All threads of the first process share a core, so that this state lasts.

Covers: libzmq by itself. Does not cover: EMLIO (tests.e2e.closings).
"""

import argparse
import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence

from emlio_testing.attacks.strangers import frame, greeting

__all__ = ["main"]

_QUEUED = 16
_CONNECTED_S, _FULL_S = 0.05, 0.02
_END_S = 5.0
_READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 4) + b"PULL"

_SENDER = """
import os, sys, zmq

lanes, half, frames = map(int, sys.argv[1:])
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
context = zmq.Context()
message = [bytes(half), bytes(half)] if frames == 2 else [bytes(2 * half)]
while True:
    sockets = [context.socket(zmq.PUSH) for _ in range(lanes)]
    for one in sockets:
        one.setsockopt(zmq.SNDHWM, QUEUED)
        one.setsockopt(zmq.SNDBUF, 32768)
    print(*(one.bind_to_random_port("tcp://127.0.0.1") for one in sockets), flush=True)
    sys.stdin.readline()
    for one in sockets:
        for _ in range(QUEUED):
            try:
                one.send_multipart(message, zmq.DONTWAIT)
            except zmq.Again:
                break
    print("full", flush=True)
    sys.stdin.readline()
    for one in sockets:
        one.close(linger=0)
""".replace("QUEUED", str(_QUEUED))


def _reader(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets it
    made.sendall(greeting(b"NULL") + frame(_READY, command=True))
    return made


def _close_lanes(sender: "subprocess.Popen[str]", seconds: float) -> int:
    """How many lanes were closed before the time was up or the sender ended."""
    if sender.stdin is None or sender.stdout is None:
        raise AssertionError("pipes were asked for")
    closed, end = 0, time.monotonic() + seconds
    while time.monotonic() < end and (ports := sender.stdout.readline().split()):
        readers = [_reader(int(port)) for port in ports]
        time.sleep(_CONNECTED_S)
        with contextlib.suppress(BrokenPipeError):
            print("fill", file=sender.stdin, flush=True)
            if sender.stdout.readline():
                time.sleep(_FULL_S)
                print("close", file=sender.stdin, flush=True)
                closed += len(readers)
        for reader in readers:
            reader.close()
    return closed


def main(argv: Sequence[str] | None = None) -> int:
    """Close lanes; 0 if the sender lived through it, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.closings.bare")
    parser.add_argument("--frames", type=int, choices=(1, 2), default=2, help="of a message (default %(default)s)")
    parser.add_argument("--lanes", type=int, default=20, help="closed at once (default %(default)s)")
    parser.add_argument("--half", type=int, default=400_000, metavar="BYTES", help="of a message (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="at most (default %(default)s)")
    told = parser.parse_args(argv)
    begun = time.monotonic()
    words = [sys.executable, "-c", _SENDER, *map(str, (told.lanes, told.half, told.frames))]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as sender:
        closed = _close_lanes(sender, told.seconds)
        with contextlib.suppress(subprocess.TimeoutExpired):
            sender.wait(0.5)
        alive = sender.poll() is None
        if alive:
            sender.kill()
        _, wrote = sender.communicate(timeout=_END_S)
    how = "alive" if alive else f"ended with status {sender.returncode}: {wrote.strip()[-200:]}"
    print(f"{told.frames} frames, {closed} lanes closed in {time.monotonic() - begun:.1f} s: {how}")
    return 0 if alive else 1


if __name__ == "__main__":
    sys.exit(main())
