"""Connections of a process that may open no more files, though some were counted a moment ago."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
import zmq

from emlio import EmlioLoader
from emlio.errors import TransportError
from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.lane_pass import LanePass
from emlio.receiver.addresses.trust import Trust
from emlio.receiver.connection.lane_plane import LanePlane
from emlio.receiver.connection.link_plane import LinkPlane
from emlio.receiver.connection.open_files import OpenFiles
from emlio.receiver.connection.transport import Network
from emlio.receiver.machine.events import CallFailed
from emlio.receiver.machine.instructions import Call, ConnectLane
from emlio.waker import Waker

PASS = LanePass.of(bytes(32), 0)


def refuse(*_: object) -> None:
    raise zmq.ZMQError(errno.EMFILE)


@pytest.mark.parametrize("what", ["zmq.Context.socket", "zmq.Socket.get_monitor_socket"])
def test_who_opened_the_last_file_first_keeps_it_and_all_can_still_be_closed(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(Waker())
    plane = LinkPlane(network, Trust())
    monkeypatch.setattr(what, refuse)
    assert network.lane("tcp://127.0.0.1:9", PASS) is None
    (failed,) = plane.carry_out(Call(3, Peer(host="127.0.0.1", port=9)))
    assert isinstance(failed, CallFailed)
    assert failed.source == 3
    assert "no open files" in str(failed.error)
    monkeypatch.undo()
    assert plane.carry_out(Call(3, Peer(host="127.0.0.1", port=9))) == []
    plane.close()
    closing = Thread(target=network.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


@contextmanager
def planes(free: int, daemons: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LanePlane, LanePlane]]:
    """The lanes of two loaders in a process that may open so many files more."""
    files = OpenFiles(lambda: 256, lambda: 256 - 16 - free, lambda: 0)  # counted once: the count does not grow here
    monkeypatch.setattr("emlio.receiver.connection.transport.files_of_process", lambda: files)
    networks = Network(Waker()), Network(Waker())
    first, second = (LanePlane(network, lambda: daemons) for network in networks)
    try:
        yield first, second
    finally:
        for plane, network in zip((first, second), networks, strict=True):
            plane.close()
            network.close()


def connected(plane: LanePlane, source: int, lanes: int) -> int:
    """Ask for so many lanes; return how many there were files for."""
    before = len(list(plane.things()))
    for number in range(lanes):
        plane.carry_out(ConnectLane(source, before + number, "tcp://127.0.0.1:9", PASS))
    return len(list(plane.things())) - before


def test_a_loader_leaves_as_many_files_as_its_lanes_take_to_the_loaders_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planes(100, 1, monkeypatch) as (first, second):
        assert connected(first, 0, 64) == 10
        assert connected(second, 0, 64) == 5
        assert connected(first, 0, 64) == 0


def test_the_daemons_of_a_loader_have_as_many_lanes_each_whichever_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with planes(100, 3, monkeypatch) as (first, _):
        assert [connected(first, source, 64) for source in (0, 1, 2)] == [3, 3, 3]
        assert [connected(first, source, 64) for source in (0, 1, 2)] == [0, 0, 0]
    with planes(15, 3, monkeypatch) as (first, _):
        assert [connected(first, source, 64) for source in (0, 1, 2)] == [1, 1, 1]


def test_a_connection_is_made_only_where_a_lane_can_be_had_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, works in ((7, True), (6, False)):  # besides, half of the 16 that are kept
        files = OpenFiles(lambda: 256, lambda free=free: 256 - 16 - free)
        monkeypatch.setattr("emlio.receiver.connection.transport.files_of_process", lambda files=files: files)
        network = Network(Waker())
        if works:
            link, lane = network.control(None, None), network.lane("tcp://127.0.0.1:9", PASS)
            assert lane is not None
            lane.close()
            link.close()
        else:
            with pytest.raises(TransportError, match="which take 15: this process is close to its limit of 256"):
                network.control(None, None)
        network.close()


def refuse_descriptor(*_: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize(("what", "refusal"), [("emlio.waker.os.eventfd", refuse_descriptor), ("zmq.Context", refuse)])
def test_a_loader_that_cannot_even_begin_names_the_limit(
    what: str, refusal: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(what, refusal)
    with pytest.raises(TransportError, match=r"Too many open files, and this process has a limit of [\d,]+\. Raise"):
        EmlioLoader("emlio://127.0.0.1:9/numbers", batch_size=8, raw=True, to="numpy")
