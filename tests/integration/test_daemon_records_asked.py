"""A daemon that is asked over a socket for single records: by ranks, by strangers, and by one that reads no answers."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import zmq

from emlio import EmlioDataset
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, RefusedError
from emlio.keys.folder import KeyFolder
from emlio.receiver.addresses.security import Security
from emlio.tfrecord import frame
from emlio.wire.control import (
    ControlMessage,
    Ping,
    Pong,
    Refused,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.limits import MOST_QUESTIONS, RECORD_BYTES_PER_REPLY, RECORDS_PER_REQUEST
from emlio.wire.protection import CLEAR
from emlio.wire.questions import Absent, Answer, AskRecords, Question, RecordRow, Records, Told
from emlio_testing.attacks.insiders import hello_of
from emlio_testing.datasets import make_dataset

_ANSWER_MS = 10_000
_SHARD = "train-00001-of-00002.tfrecord"


class _Peer:
    """A rank that only asks."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket

    def send(self, message: ControlMessage) -> None:
        self._socket.send(encode_control(message))

    def hear(self) -> ControlMessage:
        return decode_control(self._socket.recv())

    def ask(self, message: ControlMessage) -> ControlMessage:
        self.send(message)
        return self.hear()

    def greet(self) -> int:
        welcome = self.ask(hello_of("x", protections=(CLEAR,)))
        assert isinstance(welcome, Welcome)
        return welcome.session

    def told(self, session: int, *rows: RecordRow, offset: int = 0) -> Told:
        about = AskRecords(records=list(rows), offset=offset)
        answer = self.ask(Question(session=session, number=1, about=about))
        assert isinstance(answer, Answer)
        return answer.told

    def records(self, session: int, *rows: RecordRow, offset: int = 0) -> Records:
        told = self.told(session, *rows, offset=offset)
        assert isinstance(told, Records)
        return told


@contextmanager
def _peer_of_daemon(folder: Path) -> Generator[_Peer]:
    config = DaemonConfig(data=(DatasetSource(name="x", directory=folder),), bind=Endpoint(host="127.0.0.1", port=0))
    with Daemon(config) as daemon, zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, _ANSWER_MS)
        socket.setsockopt(zmq.SNDTIMEO, _ANSWER_MS)
        socket.connect(daemon.endpoint)
        yield _Peer(socket)


def _sizes(reply: Records) -> list[int]:
    sizes: list[int] = np.frombuffer(reply.sizes, "<u4").tolist()
    return sizes


def test_records_come_as_they_lie_in_the_files(tmp_path: Path) -> None:
    records = make_dataset(tmp_path / "x", records=10, shards=2)
    with _peer_of_daemon(tmp_path / "x") as peer:
        session = peer.greet()
        reply = peer.records(session, RecordRow(_SHARD, 4), RecordRow("train-00000-of-00002.tfrecord", 0))
    assert reply.payload == frame(records[9]) + frame(records[0])
    assert (_sizes(reply), reply.crcs) == ([len(records[9]) + 16, len(records[0]) + 16], b"")


def test_an_answer_has_the_records_that_fit_and_a_longer_one_comes_in_parts(tmp_path: Path) -> None:
    records = make_dataset(tmp_path / "x", records=4, shards=2, payload=RECORD_BYTES_PER_REPLY // 2)
    with _peer_of_daemon(tmp_path / "x") as peer:
        session = peer.greet()
        reply = peer.records(session, RecordRow(_SHARD, 0), RecordRow(_SHARD, 1))
        assert reply.payload == frame(records[2])
    make_dataset(tmp_path / "y", records=2, shards=1, payload=RECORD_BYTES_PER_REPLY + 84)
    with _peer_of_daemon(tmp_path / "y") as peer:
        session, row = peer.greet(), RecordRow("train-00000-of-00001.tfrecord", 1)
        first = peer.records(session, row)
        rest = peer.records(session, row, offset=RECORD_BYTES_PER_REPLY)
    assert _sizes(first) == _sizes(rest) == [RECORD_BYTES_PER_REPLY + 100]
    assert (len(first.payload), len(rest.payload)) == (RECORD_BYTES_PER_REPLY, 100)


@pytest.mark.parametrize(
    ("shard", "record", "offset"),
    [("../x/" + _SHARD, 0, 0), ("train-9", 0, 0), (_SHARD, 5, 0), (_SHARD, 2**61, 0), (_SHARD, 0, 2**61)],
    ids=["path", "shard", "end", "far", "byte"],
)
def test_what_is_not_here_is_answered_with_an_error_and_the_session_goes_on(
    tmp_path: Path, shard: str, record: int, offset: int
) -> None:
    make_dataset(tmp_path / "x", records=10, shards=2)
    with _peer_of_daemon(tmp_path / "x") as peer:
        session = peer.greet()
        told = peer.told(session, RecordRow(shard, record), offset=offset)
        assert isinstance(told, Absent)
        assert told.code == "dataset"
        assert "must be" in told.text
        assert isinstance(peer.ask(Ping(session=session, nonce=5)), Pong)


def test_a_stranger_gets_nothing(tmp_path: Path) -> None:
    make_dataset(tmp_path / "x", records=4, shards=2)
    with _peer_of_daemon(tmp_path / "x") as peer:
        answer = peer.ask(Question(session=1, number=1, about=AskRecords(records=[RecordRow(_SHARD, 0)])))
    assert isinstance(answer, Refused)
    assert answer.code == "no-session"


def test_one_that_asks_more_than_it_may_is_refused_while_others_are_answered(tmp_path: Path) -> None:
    make_dataset(tmp_path / "x", records=2 * RECORDS_PER_REQUEST, shards=2, payload=100_000)
    rows = [RecordRow(_SHARD, record) for record in range(RECORDS_PER_REQUEST)]
    with _peer_of_daemon(tmp_path / "x") as peer:
        session = peer.greet()
        for number in range(40):  # none of the answers is read meanwhile
            peer.send(Question(session=session, number=number, about=AskRecords(records=rows)))
        answers: list[ControlMessage] = []
        while not answers or not isinstance(answers[-1], Refused):
            answers.append(peer.hear())
    refused = answers[-1]
    assert isinstance(refused, Refused)
    assert f"at most {MOST_QUESTIONS} may be open" in refused.text
    assert len(answers) < 40


def test_records_are_for_those_whose_key_may_have_the_dataset(tmp_path: Path) -> None:
    store, gpu, other = (KeyFolder(tmp_path / name) for name in ("store", "gpu", "other"))
    for keys in (store, gpu, other):
        keys.make(keys.path.name)
    store.allow("gpu", gpu.pair().public, ("open",))
    for name in ("open", "closed"):
        make_dataset(tmp_path / name, records=6, shards=2)
    data = tuple(DatasetSource(name=name, directory=tmp_path / name) for name in ("open", "closed"))
    config = DaemonConfig(data=data, bind=Endpoint(host="127.0.0.1", port=0), keys=store.path)
    security = Security(keys=str(gpu.path), daemon_key=str(store.pair().public))
    with Daemon(config) as daemon:
        address = daemon.endpoint.replace("tcp", "emlio")
        with EmlioDataset(f"{address}/open", raw=True, security=security) as dataset:
            assert len(dataset[:]) == 6
        with EmlioDataset(f"{address}/closed", raw=True, security=security) as dataset, pytest.raises(RefusedError):
            dataset[0]
        unknown = Security(keys=str(other.path), daemon_key=str(store.pair().public))
        with (
            EmlioDataset(f"{address}/open", raw=True, security=unknown) as dataset,
            pytest.raises((RefusedError, ConfigError)),
        ):
            dataset[0]
