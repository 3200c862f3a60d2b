"""A daemon, and processes that want to have the same rank, said over real sockets.

Covers: who is welcomed, who waits, what the refused are told. Does not cover: the rules one by one (tests/unit/test_claims), real
processes that die (tests/e2e/test_dead_ranks).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from emlio.daemon.service import Daemon
from emlio.wire.control import (
    ControlMessage,
    Goodbye,
    Hello,
    Ping,
    Pong,
    Refused,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.seal import new_secret
from emlio_testing.datasets import make_dataset
from emlio_testing.serving import daemon_of

S = 1_000_000_000
HEARTBEAT_S = 3.0
ANSWER_MS = 20_000
SILENT_MS = 400


class Process:
    """A process of its own, as the daemon sees it."""

    def __init__(self, socket: "zmq.Socket[bytes]", endpoint: str, **hello: object) -> None:
        said: dict[str, object] = {
            "job": "j", "client": "c", "rank": 0, "world_size": 2, "dataset": "x", "host": "gpu1", "pid": 1, "software": "0"
        }  # fmt: skip
        self._hello = Hello(**{"lane_secret": new_secret(), **said, **hello})  # type: ignore[arg-type]  # options of several kinds
        self._socket = socket
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, ANSWER_MS)
        self._socket.setsockopt(zmq.SNDTIMEO, ANSWER_MS)
        self._socket.connect(endpoint)

    def say(self, message: ControlMessage) -> None:
        self._socket.send(encode_control(message))

    def say_hello(self) -> None:
        self.say(msgspec.structs.replace(self._hello, lane_secret=new_secret()))

    def hear(self) -> ControlMessage:
        """The next message that is no answer to a ping or a probe."""
        while isinstance(message := decode_control(self._socket.recv()), Pong):
            continue
        return message

    def hears_nothing(self) -> bool:
        return not self._socket.poll(SILENT_MS)

    def is_answered(self, session: int) -> bool:
        """Whether a ping in the session gets a pong."""
        self.say(Ping(session=session, nonce=77))
        message = decode_control(self._socket.recv())
        while isinstance(message, Pong) and message.nonce != 77:  # probes
            message = decode_control(self._socket.recv())
        return isinstance(message, Pong)

    def enter(self) -> int:
        """Say hello and be welcomed."""
        self.say_hello()
        welcome = self.hear()
        assert isinstance(welcome, Welcome), welcome
        return welcome.session

    def vanish(self) -> None:
        """As a process that is killed: its kernel closes the connection."""
        self._socket.close(linger=0)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    make_dataset(tmp_path / "x", records=4, shards=2)
    with daemon_of({"x": tmp_path / "x"}, heartbeat_timeout=int(HEARTBEAT_S * S)) as daemon:
        yield daemon


@pytest.fixture
def process(daemon: Daemon) -> Iterator[Callable[..., Process]]:
    """Makes one that is connected to the daemon."""
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())

        def make(**hello: object) -> Process:
            return Process(stack.enter_context(context.socket(zmq.DEALER)), daemon.endpoint, **hello)

        yield make


@contextmanager
def within(least_s: float, most_s: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert least_s <= time.monotonic() - begun < most_s


def test_of_two_living_processes_the_second_is_refused_with_both_addresses(process: Callable[..., Process]) -> None:
    first = process(host="gpu1", pid=11)
    second = process(host="gpu2", pid=22)
    session = first.enter()
    second.say_hello()
    assert second.hears_nothing(), "as long as the first is not heard"
    assert first.is_answered(session)
    refused = second.hear()
    assert isinstance(refused, Refused)
    assert refused.code == "rank-claimed"
    assert "is held by gpu1:11 (127.0.0.1), and gpu2:22 (127.0.0.1)" in refused.text
    assert first.is_answered(session), "the first goes on"


def test_the_log_says_which_dataset_was_asked_for_that_is_not_here(
    process: Callable[..., Process], caplog: pytest.LogCaptureFixture
) -> None:
    for rank in (0, 1):
        stranger = process(rank=rank, pid=rank, dataset="y")
        stranger.say_hello()
        refused = stranger.hear()
        assert isinstance(refused, Refused)
        assert refused.code == "unknown-dataset"
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["rank 0 at gpu1:0 (127.0.0.1) was refused: there is no dataset 'y' at this daemon, available: x"]


def test_a_process_that_fell_silent_loses_the_rank_to_the_one_that_waits(process: Callable[..., Process]) -> None:
    first = process(pid=11)
    second = process(pid=22)
    session = first.enter()
    with within(HEARTBEAT_S - 1, ANSWER_MS / 1000):
        second.enter()
    first.say(Ping(session=session, nonce=1))
    told = first.hear()
    assert isinstance(told, Refused)
    assert told.code == "no-session"


def test_the_rank_of_a_process_that_was_killed_is_free_before_its_time_is_over(process: Callable[..., Process]) -> None:
    first = process(pid=11)
    second = process(pid=22)
    first.enter()
    first.vanish()
    with within(0.0, HEARTBEAT_S - 1):
        second.enter()


def test_a_process_that_says_goodbye_leaves_its_rank_at_once(process: Callable[..., Process]) -> None:
    first = process(pid=11)
    second = process(pid=22)
    session = first.enter()
    second.say_hello()
    assert second.hears_nothing()
    first.say(Goodbye(session=session))
    assert isinstance(second.hear(), Welcome)


def test_a_loader_that_connects_again_need_not_wait_for_its_own_ghost(process: Callable[..., Process]) -> None:
    ghost = process()
    again = process()
    session = ghost.enter()
    with within(0.0, HEARTBEAT_S - 1):
        following = again.enter()
    assert not ghost.is_answered(session)
    assert again.is_answered(following)


def test_loaders_of_one_process_live_beside_each_other(process: Callable[..., Process]) -> None:
    train = process(client="train")
    evaluation = process(client="eval")
    sessions = train.enter(), evaluation.enter()
    assert train.is_answered(sessions[0])
    assert evaluation.is_answered(sessions[1])


@pytest.mark.parametrize("other", [{"job": "k"}, {"rank": 1}])
def test_other_jobs_and_other_ranks_do_not_wait(process: Callable[..., Process], other: dict[str, object]) -> None:
    first = process(pid=11)
    second = process(pid=22, **other)
    session = first.enter()
    second.enter()
    assert first.is_answered(session)


def test_a_newcomer_that_went_away_is_passed_over(process: Callable[..., Process]) -> None:
    first = process(pid=11)
    second = process(pid=22)
    third = process(pid=33)
    session = first.enter()
    for newcomer in (second, third):
        newcomer.say_hello()
        assert newcomer.hears_nothing()
    second.vanish()
    assert third.hears_nothing()
    with within(0.0, HEARTBEAT_S - 1):
        first.say(Goodbye(session=session))
        assert isinstance(third.hear(), Welcome)


def test_who_says_something_else_while_it_waits_waits_no_longer(process: Callable[..., Process]) -> None:
    first = process(pid=11)
    second = process(pid=22)
    session = first.enter()
    second.say_hello()
    assert second.hears_nothing()
    second.say_hello()
    told = second.hear()
    assert isinstance(told, Refused)
    assert told.code == "protocol"
    first.say(Goodbye(session=session))
    assert second.hears_nothing(), "it does not have the rank now"


@pytest.mark.parametrize("way", ["drain", "stop"])
def test_when_the_daemon_leaves_those_who_wait_are_told(
    daemon: Daemon, process: Callable[..., Process], way: str
) -> None:
    first = process(pid=11)
    second = process(pid=22)
    first.enter()
    second.say_hello()
    assert second.hears_nothing()
    if way == "drain":
        daemon.drain()
    else:
        daemon.stop()
    told = second.hear()
    assert isinstance(told, Refused)
    assert told.code == "draining"
    assert isinstance(first.hear(), Goodbye)
