"""A daemon that is asked over a socket for lanes before there is a plan.

Covers: whose they become, when none can be had, when they are free again, what is against the rules. Does not cover: rules one by
one (tests/unit/test_session_reservation), loaders that ask (test_lanes_reserved).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import zmq

from emlio.clock import Clock, SystemClock
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint, PortRange
from emlio.daemon.service import Daemon
from emlio.session.reservation import RESERVED_NS
from emlio.testing.attackers import dealer
from emlio.testing.attackers_inside import Insider, hello_of
from emlio.testing.data_messages import read_data
from emlio.testing.datasets import make_dataset
from emlio.testing.processes import settles
from emlio.testing.proxy import free_ports
from emlio.wire.control import Goodbye, Hello, Open, Opened, Ping, Pong, Refused, Reserve, Reserved, Stop, Welcome
from emlio.wire.seal import admission_token

LATE_S = 10.0
HELLO = hello_of("x", protections=("clear",))


class LeapingClock(SystemClock):
    """Goes on by itself, so much ahead of others."""

    ahead_ns = 0

    def monotonic_ns(self) -> int:
        """See `emlio.clock.Clock`."""
        return super().monotonic_ns() + self.ahead_ns


class House:
    """A daemon in this process."""

    def __init__(self, daemon: Daemon, stack: ExitStack) -> None:
        self.endpoint = daemon.endpoint
        self._stack = stack

    def peer(self, hello: Hello | None = HELLO) -> Insider:
        """One who said hello, or has not."""
        one = Insider(self._stack.enter_context(dealer(self.endpoint)))
        if hello is not None:
            one.greet(hello)
        return one

    def lanes(self, ports: Sequence[int], secret: bytes) -> "list[zmq.Socket[bytes]]":
        """Connected to each."""
        context = self._stack.enter_context(zmq.Context())
        pulls: list[zmq.Socket[bytes]] = []
        for number, port in enumerate(ports):
            pull = self._stack.enter_context(context.socket(zmq.PULL))
            pull.setsockopt(zmq.LINGER, 0)
            pull.setsockopt(zmq.RCVTIMEO, int(LATE_S * 1000))
            pull.setsockopt(zmq.PLAIN_USERNAME, b"rank")
            pull.setsockopt(zmq.PLAIN_PASSWORD, admission_token(secret, number))
            pull.connect(f"tcp://127.0.0.1:{port}")
            pulls.append(pull)
        return pulls


@contextmanager
def house(folder: Path, clock: Clock | None = None, **options: Any) -> Iterator[House]:
    usual: dict[str, Any] = {"bind": Endpoint(host="127.0.0.1", port=0), "message_size": 4096, "memory": 1 << 20}
    config = DaemonConfig(data=(DatasetSource(name="x", directory=folder),), **(usual | options))
    with Daemon(config, clock=clock) as daemon, ExitStack() as stack:
        yield House(daemon, stack)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("x")
    make_dataset(folder, records=200, shards=2, payload=400)
    return folder


def reserved(one: Insider, lanes: int = 2) -> Reserved:
    one.send(Reserve(session=0, lanes=lanes))
    return one.receive_a(Reserved)


def opened(one: Insider, stream: int = 1, lanes: int = 2) -> Opened:
    one.send(one.order(stream, lanes=lanes))
    return one.receive_a(Opened)


def refusal(one: Insider) -> Refused:
    return one.receive_a(Refused)


def listening() -> set[int]:
    """Where this process can be connected to."""
    found = psutil.Process().net_connections("tcp")
    return {connection.laddr.port for connection in found if connection.status == psutil.CONN_LISTEN}


def are_closed(ports: Sequence[int]) -> bool:
    return settles(lambda: listening().isdisjoint(ports), LATE_S)


# ---- whose they become ----------------------------------------------------------------------------------------------


def test_lanes_are_there_before_the_plan_and_become_those_of_the_first_stream(folder: Path) -> None:
    with house(folder) as here:
        one = here.peer()
        told = reserved(one)
        assert (told.session, len(told.ports), len(told.secret)) == (one.session, 2, 32)
        pulls = here.lanes(told.ports, told.secret)
        one.agree()
        assert opened(one) == Opened(stream=1, ports=told.ports, secret=told.secret)
        for number, pull in enumerate(pulls):
            header, _ = read_data(pull.recv)
            assert (header.session, header.stream, header.lane, header.lane_sequence) == (one.session, 1, number, 0)


def test_no_secret_serves_two_streams(folder: Path) -> None:
    with house(folder) as here:
        one = here.peer()
        told = reserved(one)
        one.agree()
        first = opened(one)
        second = opened(one, 2)
        one.send(Stop(session=one.session))
        third = opened(one, 3)
        assert first.secret == told.secret
        assert len({first.secret, second.secret, third.secret}) == 3
        assert are_closed(set(told.ports) - set(second.ports) - set(third.ports))


def test_a_stream_of_another_number_of_lanes_has_its_own(folder: Path) -> None:
    with house(folder) as here:
        one = here.peer()
        told = reserved(one)
        one.agree()
        other = opened(one, lanes=3)
        assert len(other.ports) == 3
        assert other.secret != told.secret
        assert are_closed(set(told.ports) - set(other.ports))


@pytest.mark.parametrize(
    ("config", "world_size", "asked", "lanes"), [({"lanes": 3}, 1, 1, 3), ({}, 4, 16, 4), ({}, 1, 5, 5)]
)
def test_as_many_are_reserved_as_a_stream_would_have(
    folder: Path, config: dict[str, Any], world_size: int, asked: int, lanes: int
) -> None:
    with house(folder, **config) as here:
        one = here.peer(hello_of("x", world_size=world_size, protections=("clear",)))
        assert len(reserved(one, asked).ports) == lanes


# ---- when there are none --------------------------------------------------------------------------------------------


def test_without_free_ports_none_are_reserved_and_the_stream_has_what_there_is(folder: Path) -> None:
    ports = free_ports(2)
    with house(folder, data_ports=PortRange(first=ports[0], last=ports[-1])) as here:
        one = here.peer()
        told = reserved(one, 3)
        assert (told.ports, told.secret) == ([], b"")
        one.agree()
        assert sorted(opened(one, lanes=2).ports) == list(ports)


def test_who_has_all_the_lanes_it_may_have_gets_none_reserved_and_keeps_its_session(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.daemon.orders.MOST_LANES_EACH", 2)
    with house(folder) as here:
        full = here.peer()
        assert len(reserved(full).ports) == 2
        one = here.peer(hello_of("x", job="other", protections=("clear",)))
        assert reserved(one).ports == []
        full.send(Goodbye(session=full.session))
        one.agree()
        assert len(opened(one).ports) == 2


# ---- when they are free again ---------------------------------------------------------------------------------------


def test_with_the_session_its_lanes_are_free(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emlio.daemon.orders.MOST_LANES_EACH", 2)
    with house(folder) as here:
        for number in range(3):
            one = here.peer(hello_of("x", job=f"job {number}", protections=("clear",)))
            told = reserved(one)
            assert len(told.ports) == 2
            assert listening() >= set(told.ports)
            one.send(Goodbye(session=one.session))
            assert are_closed(told.ports)


def test_lanes_that_nobody_orders_are_free_after_a_while_and_the_session_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.daemon.orders.MOST_LANES_EACH", 2)
    clock = LeapingClock()
    with house(folder, clock, heartbeat_timeout=10 * RESERVED_NS) as here:
        one = here.peer()
        told = reserved(one)
        here.lanes(told.ports, told.secret)
        one.agree()
        clock.ahead_ns = RESERVED_NS - int(LATE_S * 1e9) // 2
        one.send(Ping(session=one.session, nonce=1))
        one.receive_a(Pong)
        assert listening() >= set(told.ports)
        clock.ahead_ns = RESERVED_NS
        one.send(Ping(session=one.session, nonce=2))  # a clock that leaps wakes nobody
        one.receive_a(Pong)
        assert are_closed(told.ports)
        late = opened(one)
        assert late.secret != told.secret
        assert len(late.ports) == 2, "its share was given back"


def test_a_daemon_that_ends_closes_lanes_that_are_kept_still(folder: Path) -> None:
    with house(folder) as here:
        told = reserved(here.peer())
    assert are_closed(told.ports)


# ---- against the rules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["twice", "after the first stream", "after it was stopped"])
def test_lanes_are_reserved_once_and_before_the_first_stream(folder: Path, when: str) -> None:
    with house(folder) as here:
        one = here.peer()
        if when == "twice":
            told = reserved(one).ports
        else:
            one.agree()
            told = opened(one).ports
        if when == "after it was stopped":
            one.send(Stop(session=one.session))
        one.send(Reserve(session=one.session, lanes=1))
        assert refusal(one).code == "protocol"
        assert are_closed(told)


def test_who_has_not_said_hello_reserves_nothing(folder: Path) -> None:
    with house(folder) as here:
        before = listening()
        one = here.peer(None)
        one.send(Reserve(session=0, lanes=2))
        assert refusal(one).code == "no-session"
        assert listening() == before


@pytest.mark.parametrize("lanes", [0, 65])
def test_no_number_beyond_that_of_a_stream_is_understood(folder: Path, lanes: int) -> None:
    with house(folder) as here:
        one = here.peer()
        one.send(Reserve(session=0, lanes=lanes))
        assert refusal(one).code == "protocol"


def test_behind_a_hello_that_must_wait_nothing_is_reserved_and_nothing_is_wrong(folder: Path) -> None:
    """Another process has the rank; it may be dead, which shows later."""
    with house(folder) as here:
        before = here.peer()
        after = here.peer(None)
        after.send(msgspec.structs.replace(HELLO, client="other", pid=2))
        after.send(Reserve(session=0, lanes=2))
        after.send(Ping(session=0, nonce=1))
        assert isinstance(after.receive(), Pong), "it waits, and was not refused"
        before.send(Goodbye(session=before.session))
        after.session = after.receive_a(Welcome).session
        assert after.session != before.session
        after.rows = before.rows
        after.agree()
        order: Open = after.order(1, lanes=2)
        after.send(order)
        assert len(after.receive_a(Opened).ports) == 2
