"""A daemon that is asked over a socket how long records are."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import zmq

from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.tfrecord import frame
from emlio.wire.control import (
    ControlMessage,
    Goodbye,
    Ping,
    Pong,
    Refused,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.limits import RECORDS_PER_SIZES
from emlio.wire.protection import CLEAR
from emlio.wire.questions import Answer, AskSizes, Question, Sizes
from emlio_testing.attacks.insiders import hello_of
from emlio_testing.datasets import make_dataset

_ANSWER_MS = 10_000


class _Peer:
    """A rank that only asks."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket

    def ask(self, message: ControlMessage) -> ControlMessage:
        self._socket.send(encode_control(message))
        return decode_control(self._socket.recv())

    def greet(self) -> int:
        welcome = self.ask(hello_of("x", protections=(CLEAR,)))
        assert isinstance(welcome, Welcome)
        return welcome.session

    def sizes(self, session: int, shard: str, first: int, count: int) -> Sizes:
        about = AskSizes(shard=shard, first=first, count=count)
        answer = self.ask(Question(session=session, number=1, about=about))
        assert isinstance(answer, Answer)
        assert isinstance(answer.told, Sizes)
        return answer.told

    def leave(self, session: int) -> None:
        self._socket.send(encode_control(Goodbye(session=session)))


@contextmanager
def _peer_of_daemon(folder: Path) -> Iterator[_Peer]:
    config = DaemonConfig(data=(DatasetSource(name="x", directory=folder),), bind=Endpoint(host="127.0.0.1", port=0))
    with Daemon(config) as daemon, zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 1000)
        socket.setsockopt(zmq.RCVTIMEO, _ANSWER_MS)
        socket.setsockopt(zmq.SNDTIMEO, _ANSWER_MS)
        socket.connect(daemon.endpoint)
        yield _Peer(socket)


def _numbers(sizes: bytes) -> list[int]:
    return [int(size) for size in np.frombuffer(sizes, "<u4")]


def test_the_answers_lead_to_the_records_in_the_files(tmp_path: Path) -> None:
    records = make_dataset(tmp_path / "x", records=50, shards=3)
    first_of_shard = 0
    with _peer_of_daemon(tmp_path / "x") as peer:
        session = peer.greet()
        for path in sorted((tmp_path / "x").glob("*.tfrecord")):
            data = path.read_bytes()
            reply = peer.sizes(session, path.name, 5, 1000)
            sizes, at = _numbers(reply.sizes), reply.offset
            for record, size in enumerate(sizes, start=first_of_shard + 5):
                assert data[at : at + size] == frame(records[record])
                at += size
            assert at == len(data)
            first_of_shard += 5 + len(sizes)
        peer.leave(session)
    assert first_of_shard == 50


def test_what_is_not_here_is_answered_with_nothing_and_the_session_goes_on(tmp_path: Path) -> None:
    make_dataset(tmp_path / "x", records=4, shards=2, payload=100)
    name = "train-00001-of-00002.tfrecord"
    with _peer_of_daemon(tmp_path / "x") as peer:
        session = peer.greet()
        for shard, first in (("train-00009-of-00002.tfrecord", 0), ("../x/" + name, 0), (name, 2), (name, 10**15)):
            reply = peer.sizes(session, shard, first, 1)
            assert (reply.offset, reply.sizes) == (0, b"")
        assert isinstance(peer.ask(Ping(session=session, nonce=5)), Pong)
        reply = peer.sizes(session, name, 1, 1)
        assert (reply.offset, _numbers(reply.sizes)) == (116, [116])
        peer.leave(session)


def test_a_stranger_learns_nothing(tmp_path: Path) -> None:
    make_dataset(tmp_path / "x", records=4, shards=2)
    with _peer_of_daemon(tmp_path / "x") as peer:
        answer = peer.ask(
            Question(session=1, number=1, about=AskSizes(shard="train-00001-of-00002.tfrecord", first=0, count=1))
        )
    assert isinstance(answer, Refused)
    assert answer.code == "no-session"


def test_a_shard_of_many_records_is_answered_in_parts(tmp_path: Path) -> None:
    count = RECORDS_PER_SIZES + 1000
    make_dataset(tmp_path / "x", records=count, shards=1, payload=lambda record: bytes(record % 7))
    name = "train-00000-of-00001.tfrecord"
    with _peer_of_daemon(tmp_path / "x") as peer:
        session = peer.greet()
        begin = peer.sizes(session, name, 0, count)
        rest = peer.sizes(session, name, RECORDS_PER_SIZES, count)
        peer.leave(session)
    assert _numbers(begin.sizes) == [16 + record % 7 for record in range(RECORDS_PER_SIZES)]
    assert rest.offset == sum(_numbers(begin.sizes))
    assert _numbers(rest.sizes) == [16 + record % 7 for record in range(RECORDS_PER_SIZES, count)]
