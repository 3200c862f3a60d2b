"""The attackers, each a process of its own that does one thing at a bounded rate.

Covers: the attacks and their rates, a bound on processor time, the end on SIGTERM. Does not cover:
the tools of attackers (emlio_testing.attacks.strangers), the daemon and its rank
(emlio_testing.attacks.stage).
"""

import random
import signal
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

import msgspec
import zmq

from emlio.keys.folder import KeyFolder
from emlio.keys.key import PublicKey
from emlio.wire.control import Ping, encode_control
from emlio_bench.harness.meter import process_cpu_ns
from emlio_bench.harness.rhythm import Rhythm
from emlio_bench.processes.child import say
from emlio_testing.attacks.insiders import hello_of, insider
from emlio_testing.attacks.strangers import Crowd, Stranger, dealer_in, frame, greeting, many_descriptors, plain_hello

__all__ = ["ATTACKS", "MOST_OF_A_CORE", "NOTHING", "Attack", "AttackOrder", "Attacked", "Begun", "attack"]

NOTHING: Final = "nothing"
MOST_OF_A_CORE: Final = 0.25
"""The share of a core above which an attacker pauses.

A real attacker has machines of its own, but here it shares the daemon's machine.
"""

_CROWD: Final = 2000
_CALLED_AT_ONCE: Final = 100
_DRIPPING: Final = 1000
_KEPT: Final = 100
_DESCRIPTORS: Final = 4096
_GARBAGE_BYTES: Final = 16 << 10
_OVERSIZED: Final = 1 << 40
_PINGS: Final = 20
_MADE_UP_NS: Final = 100_000_000


class AttackOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of an attacker.

    Attributes:
        name: a key of `ATTACKS`.
        peer: HOST:PORT of the daemon's control port.
        lane_ports: ports of the rank's lanes.
        dataset: dataset that the insider may read.
        stranger: folder with keys that the daemon does not know.
        insider: folder with keys that the daemon accepts.
        daemon_key: the daemon's public key.
    """

    name: str
    peer: str
    lane_ports: tuple[int, ...]
    dataset: str
    stranger: str
    insider: str
    daemon_key: str


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A message that the attack is running at its full rate."""


class Attacked(msgspec.Struct, frozen=True, kw_only=True):
    """The count of acts since `Begun`, and the time they took."""

    acts: int
    elapsed_ns: int


Act = Callable[[], int]
"""A function that does a small part of the attack and returns the number of acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """A kind of attack.

    Attributes:
        title: title for tables.
        act: name of what is counted, in the plural.
        turns_per_s: number of calls of the act per second.
        open: opens the attacker.
    """

    title: str
    act: str
    turns_per_s: float
    open: Callable[[AttackOrder], AbstractContextManager[Act]]


class _Closable(Protocol):
    def close(self) -> None: ...


class _Kept:
    """The most recent connections of an attacker.

    Closing a connection at once would take back the data sent on it. The oldest connection is
    closed when there are too many.
    """

    def __init__(self) -> None:
        self._all: deque[_Closable] = deque()

    def add(self, one: _Closable) -> None:
        self._all.append(one)
        if len(self._all) > _KEPT:
            self._all.popleft().close()

    def close(self) -> None:
        while self._all:
            self._all.popleft().close()


@contextmanager
def _nothing(order: AttackOrder) -> Generator[Act, None, None]:
    yield lambda: 0


@contextmanager
def _idle_crowd(order: AttackOrder) -> Generator[Act, None, None]:
    with Crowd(order.peer, _CROWD) as crowd:

        def act() -> int:
            crowd.listen(0.05)
            missing = min(_CROWD - crowd.connections, _CALLED_AT_ONCE)
            crowd.grow(missing)
            return missing

        yield act


@contextmanager
def _slow_loris(order: AttackOrder) -> Generator[Act, None, None]:
    with ExitStack() as stack:
        crowd, said = stack.enter_context(Crowd(order.peer, _DRIPPING)), 0

        def act() -> int:
            nonlocal crowd, said
            if crowd.listen(0.05) or said == len(greeting()):
                stack.close()
                crowd, said = stack.enter_context(Crowd(order.peer, _DRIPPING)), 0
            speaking = crowd.connections
            crowd.say(greeting()[said : said + 1])
            said += 1
            return speaking

        yield act


@contextmanager
def _garbage(order: AttackOrder) -> Generator[Act, None, None]:
    chance = random.Random(1)
    yield from _words(order.peer, lambda: greeting() + frame(chance.randbytes(_GARBAGE_BYTES), command=True))


@contextmanager
def _oversized(order: AttackOrder) -> Generator[Act, None, None]:
    word = greeting() + frame(bytes(_GARBAGE_BYTES), said_bytes=_OVERSIZED)
    yield from _words(order.peer, lambda: word)


def _words(peer: str, word: Callable[[], bytes]) -> Generator[Act, None, None]:
    with closing(_Kept()) as kept:

        def act() -> int:
            one = Stranger(peer)
            kept.add(one)
            one.say(word())
            return 1

        yield act


@contextmanager
def _handshakes(order: AttackOrder) -> Generator[Act, None, None]:
    pair, daemon = KeyFolder(Path(order.stranger)).pair(), PublicKey.parse(order.daemon_key)
    with zmq.Context() as context, closing(_Kept()) as kept:

        def act() -> int:
            kept.add(dealer_in(context, f"tcp://{order.peer}", pair, daemon))
            return 1

        yield act


@contextmanager
def _pings(order: AttackOrder) -> Generator[Act, None, None]:
    daemon = PublicKey.parse(order.daemon_key)
    with insider(f"tcp://{order.peer}", KeyFolder(Path(order.insider)).pair(), daemon) as one:
        one.greet(hello_of(order.dataset))
        ping = encode_control(Ping(session=one.session, nonce=1))

        def act() -> int:
            sent = one.pour(ping, _PINGS)
            while one.socket.poll(0, zmq.POLLIN):
                one.socket.recv()
            return sent

        yield act


@contextmanager
def _lane_strangers(order: AttackOrder) -> Generator[Act, None, None]:
    ports = cycle(order.lane_ports)
    word = greeting(b"PLAIN") + plain_hello(b"x" * 64)
    with closing(_Kept()) as kept:

        def act() -> int:
            one = Stranger(f"127.0.0.1:{next(ports)}")
            kept.add(one)
            one.say(word)
            return 1

        yield act


ATTACKS: Final = {
    NOTHING: Attack(title="nothing", act="acts", turns_per_s=20, open=_nothing),
    "crowd": Attack(title=f"{_CROWD:,} idle connections, renewed", act="connections", turns_per_s=10, open=_idle_crowd),
    "loris": Attack(
        title=f"{_DRIPPING:,} connections, a byte a second each", act="bytes", turns_per_s=1, open=_slow_loris
    ),
    "garbage": Attack(title="frames of garbage", act="frames", turns_per_s=200, open=_garbage),
    "oversized": Attack(title="frames of 1 TiB", act="frames", turns_per_s=200, open=_oversized),
    "handshakes": Attack(title="handshakes with a wrong key", act="handshakes", turns_per_s=200, open=_handshakes),
    "pings": Attack(title="pings of one with a key", act="messages", turns_per_s=100, open=_pings),
    "lanes": Attack(title="strangers at the lanes", act="connections", turns_per_s=200, open=_lane_strangers),
}


def attack(orders: bytes) -> None:
    """Run the attacker's process until SIGTERM."""
    order = msgspec.json.decode(orders, type=AttackOrder)
    chosen, told_to_end = ATTACKS[order.name], False

    def end_soon(number: int, where: FrameType | None) -> None:
        nonlocal told_to_end
        told_to_end = True

    with many_descriptors(_DESCRIPTORS), chosen.open(order) as act:
        signal.signal(signal.SIGTERM, end_soon)
        act()
        say(Begun())
        begun_ns, begun_cpu_ns, acts = time.monotonic_ns(), process_cpu_ns(0), 0
        rhythm = Rhythm(round(1e9 / chosen.turns_per_s), _MADE_UP_NS)
        while not told_to_end:
            acts += act()
            now_ns = time.monotonic_ns()
            too_much_ns = round((process_cpu_ns(0) - begun_cpu_ns) / MOST_OF_A_CORE) - (now_ns - begun_ns)
            time.sleep(max(rhythm.wait_ns(now_ns), too_much_ns) / 1e9)
        say(Attacked(acts=acts, elapsed_ns=time.monotonic_ns() - begun_ns))
