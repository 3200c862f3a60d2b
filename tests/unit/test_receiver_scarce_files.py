"""Connections of a process that may open no more files, though some were counted a moment ago.

Does not cover: the counting (test_receiver_open_files), jobs (tests/integration/test_loader_scarce_files.py).
"""

import errno
from threading import Thread

import pytest
import zmq

from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.lane_pass import LanePass
from emlio.receiver.addresses.trust import Trust
from emlio.receiver.connection.link_plane import LinkPlane
from emlio.receiver.connection.transport import Network
from emlio.receiver.machine.events import CallFailed
from emlio.receiver.machine.instructions import Call
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
