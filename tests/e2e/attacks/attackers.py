"""Attackers, each a process of its own that does one thing at a bounded rate until it is ended.

Covers: the attacks and their rates, a bound on processor time. Does not cover: the tools of attackers (emlio_testing.attacks),
what is attacked (siege.py).
"""

import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import zmq

from emlio.keys.folder import KeyFolder
from emlio.keys.key import PublicKey
from emlio.wire.control import Ping, encode_control
from emlio_testing.attacks.insiders import hello_of, insider
from emlio_testing.attacks.strangers import Crowd, Stranger, dealer_in, frame, greeting, many_descriptors, plain_hello

__all__ = ["ATTACKS"]

MOST_OF_A_CORE = 0.25
"""A real attacker has machines of his own; here he shares the daemon's, so he pauses when he had this much."""

CROWD, DRIPPING, KEPT, DESCRIPTORS = 2000, 1000, 100, 4096
GARBAGE_BYTES, OVERSIZED = 16 << 10, 1 << 40


class Attacked:
    """The target of an attack: HOST:PORT of the control port and of a lane, a dataset, and all keys."""

    def __init__(self, peer: str, lane: str, dataset: str, stranger: Path, insider: Path, daemon_key: str) -> None:
        self.peer, self.lane, self.dataset, self.daemon_key = peer, lane, dataset, daemon_key
        self.stranger, self.insider = stranger, insider


def crowd(at: Attacked) -> Iterator[None]:
    """Connections that say nothing, made again when they are hung up on."""
    with Crowd(at.peer, CROWD) as all_of_them:
        while True:
            all_of_them.listen(0.05)
            all_of_them.grow(min(CROWD - all_of_them.connections, 100))
            yield


def loris(at: Attacked) -> Iterator[None]:
    """Connections that say a greeting, a byte a second, made again when they are hung up on or have said it."""
    while True:
        with Crowd(at.peer, DRIPPING) as dripping:
            for byte in greeting():
                if dripping.listen(0.05):
                    break
                dripping.say(bytes([byte]))
                yield


def words(peers: Iterator[str], word: Callable[[], bytes]) -> Iterator[None]:
    """Stranger after stranger; the last ones stay, for closing a connection at once takes back what it said."""
    with ExitStack() as stack:
        kept = deque[Any]()
        stack.callback(lambda: [one.close() for one in kept])
        while True:
            kept.append(Stranger(next(peers)))
            kept[-1].say(word())
            if len(kept) > KEPT:
                kept.popleft().close()
            yield


def garbage(at: Attacked) -> Iterator[None]:
    """A greeting, then a command of chance."""
    chance = random.Random(1)
    return words(cycle([at.peer]), lambda: greeting() + frame(chance.randbytes(GARBAGE_BYTES), command=True))


def oversized(at: Attacked) -> Iterator[None]:
    """A greeting, then a message that says it has 1 TiB."""
    word = greeting() + frame(bytes(GARBAGE_BYTES), said_bytes=OVERSIZED)
    return words(cycle([at.peer]), lambda: word)


def lanes(at: Attacked) -> Iterator[None]:
    """A wrong token at a port over which the rank gets its records."""
    return words(cycle([at.lane]), lambda: greeting(b"PLAIN") + plain_hello(b"x" * 64))


def handshakes(at: Attacked) -> Iterator[None]:
    """The whole handshake with a key that nobody admitted."""
    pair, daemon = KeyFolder(at.stranger).pair(), PublicKey.parse(at.daemon_key)
    with zmq.Context() as context:
        kept = deque[Any]()
        try:
            while True:
                kept.append(dealer_in(context, f"tcp://{at.peer}", pair, daemon))
                if len(kept) > KEPT:
                    kept.popleft().close()
                yield
        finally:
            for one in kept:
                one.close()


def pings(at: Attacked) -> Iterator[None]:
    """Well-formed messages of one whose key is admitted, with a session."""
    with insider(f"tcp://{at.peer}", KeyFolder(at.insider).pair(), PublicKey.parse(at.daemon_key)) as one:
        one.greet(hello_of(at.dataset))
        ping = encode_control(Ping(session=one.session, nonce=1))
        while True:
            one.pour(ping, 20)
            while one.socket.poll(0, zmq.POLLIN):
                one.socket.recv()
            yield


ATTACKS: dict[str, tuple[Callable[[Attacked], Iterator[None]], float]] = {
    "crowd": (crowd, 10),
    "loris": (loris, 1),
    "garbage": (garbage, 200),
    "oversized": (oversized, 200),
    "handshakes": (handshakes, 200),
    "pings": (pings, 100),
    "lanes": (lanes, 200),
}
"""Each with its turns in a second."""


def main(name: str, *where: str) -> None:
    """Attack until this process is ended."""
    kind, turns_per_s = ATTACKS[name]
    peer, lane, dataset, stranger, insider_keys, daemon_key = where
    at = Attacked(peer, lane, dataset, Path(stranger), Path(insider_keys), daemon_key)
    with many_descriptors(DESCRIPTORS):
        turns = kind(at)
        next(turns)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        due_s = begun_s
        for _ in turns:
            due_s += 1 / turns_per_s
            rested_s = begun_s + (time.process_time() - begun_cpu_s) / MOST_OF_A_CORE
            time.sleep(max(due_s - time.monotonic(), rested_s - time.monotonic(), 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
