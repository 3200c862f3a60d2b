"""A recorder's Unix socket: edges, holding, limits. Real sockets, one process."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import msgspec
import pytest

from emlio.clock import SystemClock
from emlio.energy.recording.edge import SCHEMA, Edge, EdgeClient
from emlio.energy.recording.edge_server import EdgeServer, listen
from emlio.energy.values.counter import Event
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.errors import ConfigError, PeerLostError, RefusedError, RemoteProtocolError, TransportError
from emlio_testing.energy_series import make_device, make_reading

RUN = Run(node="s1", devices=(make_device(most_watts=9.5),), interval_ns=1, begun_mono_ns=0, begun_real_ns=0, boot="b")
READING = make_reading(4, 77, 2**60, events=(Event.WRAPPED,), edge=True, cpu_busy_ns=3)
SOON_S = 20.0


class House:
    """A server that a thread keeps."""

    def __init__(self) -> None:
        self.waiter = EdgeServer(SystemClock())
        self.reading: Reading | None = READING
        self.asked = 0
        self._stop = Flag()
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        clock = SystemClock()
        while not self._stop.is_set():
            self.waiter.wait(clock.monotonic_ns() + 50_000_000)

    def read(self) -> Reading | None:
        self.asked += 1
        return self.reading

    def start(self, path: Path) -> None:
        self.waiter.open(listen(path), RUN, file=Path("/data/e.sqlite"), number=3, read=self.read)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self.waiter.wake()
        if self._thread.is_alive():
            self._thread.join()
        self.waiter.close()


@pytest.fixture
def house() -> Iterator[House]:
    made = House()
    yield made
    made.close()


@pytest.fixture
def place(house: House, tmp_path: Path) -> Path:
    """Where a recorder is asked for edges."""
    path = tmp_path / "edge"
    house.start(path)
    return path


def test_who_asks_gets_the_reading_and_where_it_is_kept(place: Path, house: House) -> None:
    with EdgeClient(place, timeout_s=SOON_S) as client:
        for _ in range(3):
            edge = client.read()
        assert edge.reading == READING
        assert (edge.node, edge.boot, edge.file, edge.number) == ("s1", "b", "/data/e.sqlite", 3)
        assert edge.devices == RUN.devices
    assert house.asked == 3


def test_who_asks_too_often_is_told(place: Path, house: House) -> None:
    house.reading = None
    with EdgeClient(place, timeout_s=SOON_S) as client:
        with pytest.raises(RefusedError, match="too many requests") as refused:
            client.read()
        assert refused.value.code == "too-often"
        house.reading = READING
        assert client.read().reading == READING, "and may ask again"


def test_it_is_known_whether_somebody_holds_the_recorder(place: Path, house: House) -> None:
    with EdgeClient(place, timeout_s=SOON_S) as watcher:
        assert (house.waiter.held, house.waiter.was_held) == (False, False)
        first, second = EdgeClient(place, timeout_s=SOON_S), EdgeClient(place, timeout_s=SOON_S)
        for holder in (first, second):
            holder.hold()
            assert holder.read().reading == READING, "and may ask, too"
        for holder, still in ((first, True), (second, False)):
            holder.close()
            for _ in range(2):  # what was done before the first question has been seen when the second one is answered
                watcher.read()
            assert (house.waiter.held, house.waiter.was_held) == (still, True)


def test_a_path_may_be_longer_than_the_kernel_takes_for_a_socket(tmp_path: Path, house: House) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    house.start(folder / "edge")
    assert stat.S_ISSOCK((folder / "edge").lstat().st_mode)
    with EdgeClient(folder / "edge", timeout_s=SOON_S) as client:
        assert client.read().reading == READING
    with pytest.raises(ConfigError, match="another recorder already uses it"):
        listen(folder / "edge")


def raw(path: Path, *pieces: bytes) -> bytes:
    """All that is answered."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(SOON_S)
        link.connect(str(path))
        for piece in pieces:
            link.sendall(piece)
        heard = b""
        try:
            while piece := link.recv(65536):
                heard += piece
        except ConnectionResetError:
            pass
        return heard


def test_nonsense_is_answered_once_and_shown_out(place: Path, house: House) -> None:
    assert b"must be the word 'read' or 'hold'" in raw(place, b"write\nread\n")
    assert raw(place, b"x" * 9000) == b""
    assert house.asked == 0


def test_questions_that_come_in_pieces_or_together_are_answered_one_by_one(place: Path) -> None:
    heard = raw(place, b"re", b"ad\nread\nread\n", b"stop\n")
    assert len(heard.splitlines()) == 4
    assert heard.count(b'"seq":4') == 3


def test_one_who_does_not_listen_delays_nobody(place: Path, house: House) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(str(place))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        try:
            while deaf.send(b"read\n" * 1000):
                pass
        except BlockingIOError:
            pass
        with EdgeClient(place, timeout_s=SOON_S) as client:
            assert client.read().reading == READING


def test_there_is_a_bound_to_those_who_may_ask_at_once(place: Path) -> None:
    with ExitStack() as stack:
        for _ in range(32):
            assert stack.enter_context(EdgeClient(place, timeout_s=SOON_S)).read().reading == READING
        with pytest.raises(PeerLostError, match="recorder at"), EdgeClient(place, timeout_s=SOON_S) as late:
            late.read()


def test_only_its_user_may_ask_unless_a_group_may_too(tmp_path: Path) -> None:
    for name, group, mode in (("own", None, 0o600), ("ours", os.getgid(), 0o660)):
        with listen(tmp_path / name, group=group):
            found = (tmp_path / name).stat()
            assert stat.S_IMODE(found.st_mode) == mode
            assert found.st_gid == os.getgid()


def test_a_socket_that_a_killed_recorder_left_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "edge"
    listen(path).close()
    with listen(path), pytest.raises(ConfigError, match="another recorder already uses it"):
        listen(path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="a file of another kind exists there"):
        listen(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(ConfigError, match="cannot be created"):
        listen(tmp_path / ("x" * 200))


def test_asking_where_nobody_answers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="cannot connect to a recorder at"):
        EdgeClient(tmp_path / "none")
    silent = tmp_path / "silent"
    with (
        listen(silent),
        EdgeClient(silent, timeout_s=0.05) as client,
        pytest.raises(PeerLostError, match="does not answer: timed out"),
    ):
        client.read()


def test_an_answer_that_comes_late_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    edges = [
        Edge(node="s1", boot="b", file="/e", number=number, devices=RUN.devices, reading=READING) for number in (1, 2)
    ]
    answers = [msgspec.json.encode({"schema": SCHEMA, **msgspec.to_builtins(edge)}) + b"\n" for edge in edges]
    with listen(tmp_path / "slow") as listener, EdgeClient(tmp_path / "slow", timeout_s=0.05) as client:
        link, _ = listener.accept()
        with link:
            for heard in (b"", answers[0][:40]):
                link.sendall(heard)
                with pytest.raises(PeerLostError, match="does not answer: timed out"):
                    client.read()
            link.sendall(answers[0][40:] + answers[0] + answers[1])
            assert client.read().number == 2
            link.sendall(answers[0])
            assert client.read().number == 1


@pytest.mark.parametrize("line", [b"{}\n", b"nothing\n", b'{"schema":2}\n', b'{"schema":1,"node":"a"}\n', b"[]\n"])
def test_an_answer_that_is_none_is_not_believed(line: bytes, tmp_path: Path) -> None:
    with listen(tmp_path / "liar") as listener, EdgeClient(tmp_path / "liar", timeout_s=SOON_S) as client:
        link, _ = listener.accept()
        with link:
            link.sendall(line)
            with pytest.raises(RemoteProtocolError, match="must answer with a reading of version 1"):
                client.read()
