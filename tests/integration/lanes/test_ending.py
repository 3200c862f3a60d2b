"""Lanes of ranks that lie, leave, or come before their session; ending connections."""

import os
import socket as tcp
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zmq

from emlio.daemon.config import Endpoint
from emlio.daemon.lanes.group import LaneGroup
from emlio.daemon.lanes.sender import LaneSender
from emlio.daemon.network.lane_socket import Connection
from emlio.daemon.network.transport import Network
from emlio.wire.credit import Credit, encode_credit
from emlio.wire.seal import lane_group, new_secret
from emlio_testing.daemon_streams import FOR_EVER_S, HELD, open_streams
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from tests.integration.lanes.stage import FRAME, Peer, Stage, reading

LIES: list[Callable[[Peer], None]] = [
    lambda peer: peer.socket.send(b""),
    lambda peer: peer.socket.send(b"garbage" * 10),
    lambda peer: peer.socket.send(bytes(4096)),
    lambda peer: peer.socket.send_multipart([encode_credit(Credit(read_bytes=0))] * 2),
    lambda peer: peer.socket.send(encode_credit(Credit(read_bytes=1 << 40))),
    lambda peer: peer.socket.send(encode_credit(Credit(read_bytes=-1))),
    lambda peer: peer.socket.send(encode_credit(Credit(read_bytes=0, stream=1, allowed_bytes=1 << 63))),
    lambda peer: peer.socket.send(encode_credit(Credit(read_bytes=0, version=9))),
    lambda peer: peer.socket.send(encode_credit(Credit(read_bytes=0))[:-1]),
]


@pytest.mark.parametrize("lie", range(len(LIES)))
def test_a_credit_that_cannot_be_ends_its_session_and_no_other(stage: Stage, folder: Path, lie: int) -> None:
    with open_streams(folder, 2, limit_bytes=30 * HELD) as (one, other), reading(stage, one, other):
        first, second = stage.expect(41), stage.expect(42)
        (liar,), (honest,) = stage.connect(first, 0), stage.connect(second, 0)
        stage.attach(one, first, 1)
        stage.attach(other, second, 1, Credit(read_bytes=0, stream=2, allowed_bytes=1 << 60, epoch=1 << 40))
        assert liar.read(answer=False) is not None
        LIES[lie](liar)
        session, error = stage.faults.get(timeout=FOR_EVER_S)
        assert session == 41
        assert str(error).startswith("lane 0: a ")
        LIES[lie](liar)
        for _ in range(50):
            assert honest.read() is not None
        while liar.read(answer=False, timeout_s=0.1) is not None:
            assert liar.read_bytes < 10 * FRAME, "nothing more is sent to it"
        assert stage.faults.empty()


def _held_by(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def test_a_session_that_is_over_is_hung_up_on_and_its_memory_is_free(stage: Stage, tmp_path: Path) -> None:
    make_dataset(tmp_path, records=40, shards=2, payload=4 << 20)
    with open_streams(tmp_path, 2) as (one, other), reading(stage, one, other, memory_bytes=1 << 30):
        first, second = stage.expect(1, limit_bytes=64 << 20), stage.expect(2)
        (stuck,), (kept,) = stage.connect(first, 0), stage.connect(second, 0)
        stuck.credit()
        kept.credit()
        stage.attach(one, first, 1)
        assert settles(lambda: stage.sender.totals(one).sent_bytes >= 40 << 20, FOR_EVER_S)
        one.close()
        stage.sender.detach(one)
        assert one.in_flight_bytes > 8 << 20, "the rank does not read"
        session = stage.sender._table.session(lane_group(first))
        assert session is not None
        (descriptor,) = (connection.descriptor for connection in session.connections.values())
        held = os.readlink(f"/proc/self/fd/{descriptor}")
        began = time.monotonic()
        stage.sender.close_group(lane_group(first))
        assert settles(lambda: not one.in_flight_bytes, FOR_EVER_S)
        assert 0.9 < time.monotonic() - began < FOR_EVER_S
        assert settles(lambda: _held_by(descriptor) != held, FOR_EVER_S)
        stage.attach(other, second, 1, Credit(read_bytes=0, stream=2, allowed_bytes=1 << 60, epoch=1 << 40))
        assert kept.read() is not None


def test_a_rank_that_leaves_by_itself_is_not_mistaken_for_who_has_its_descriptor_now(
    stage: Stage, folder: Path
) -> None:
    with open_streams(folder) as (stream,), reading(stage, stream):
        first, second = stage.expect(1), stage.expect(2)
        (leaving,) = stage.connect(first, 0)
        leaving.credit()
        assert settles(lambda: bool(stage.sender._table._descriptors), FOR_EVER_S)
        (descriptor,) = stage.sender._table._descriptors
        stage.sender.close_group(lane_group(first))
        leaving.socket.close(linger=0)
        assert settles(lambda: not os.path.exists(f"/proc/self/fd/{descriptor}"), FOR_EVER_S)
        # The lowest free number is given out next: one end of these is libzmq's, and was the other's.
        peers = stage.connect(second, *range(4))
        stage.attach(stream, second, 4)
        for turn in range(200):
            assert peers[turn % 4].read() is not None
            time.sleep(0.008)
        assert stage.sender.lanes_lost == 0


def test_a_connection_is_not_ended_by_what_another_one_had(stage: Stage) -> None:
    (peer,) = stage.connect(stage.expect(1), 0)
    peer.credit()
    assert settles(lambda: bool(stage.sender._table._descriptors), FOR_EVER_S)
    ((descriptor, (lane, session)),) = stage.sender._table._descriptors.items()
    connection = session.connections[lane]
    with tcp.create_server(("127.0.0.1", 0)) as elsewhere:
        for wrong in (
            Connection(descriptor=descriptor, peer=("127.0.0.1", 1)),
            Connection(descriptor=elsewhere.fileno(), peer=connection.peer),
            Connection(descriptor=1, peer=connection.peer),
            Connection(descriptor=999_999, peer=connection.peer),
        ):
            assert not stage.socket.disconnect(wrong)
    assert stage.socket.disconnect(connection)
    assert settles(lambda: not stage.socket.disconnect(connection), FOR_EVER_S)


def test_a_knock_that_comes_before_its_session_waits_for_it_two_seconds_at_most(stage: Stage, folder: Path) -> None:
    with open_streams(folder) as (stream,), reading(stage, stream):
        early, never = new_secret(), new_secret()
        (peer,) = stage.connect(early, 0)
        events = peer.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        (stranger,) = stage.connect(never, 0)
        refused = stranger.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        began = time.monotonic()
        assert not events.poll(500)
        stage.sender.register(LaneGroup(session=1, secret=early, limit_bytes=4 * FRAME))
        assert stage.zap_thread.expect(lane_group(early), early)
        assert events.poll(500)
        stage.attach(stream, early, 1)
        assert peer.read() is not None
        assert refused.poll(FOR_EVER_S * 1000)
        assert 1.9 < time.monotonic() - began < FOR_EVER_S
        for socket, monitor in ((peer.socket, events), (stranger.socket, refused)):
            socket.disable_monitor()
            monitor.close(linger=0)


def test_a_sender_that_was_not_started_frees_its_port() -> None:
    with Network(Endpoint(host="127.0.0.1", port=0)) as network:
        socket = network.lanes(Endpoint(host="127.0.0.1", port=0), 65_535)
        LaneSender(socket, on_failure=partial(pytest.fail), on_fault=lambda *_: None).close()
