"""One lane: messages in one frame, messages whose payload comes apart, and the order of both when the lane is full."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import zmq

from emlio.daemon.config import Endpoint, PortRange
from emlio.daemon.gate import Gate, Guest
from emlio.daemon.transport import Lane, Network

SOON_MS = 20_000
PAYLOAD = 1 << 20
"""More than libzmq copies, and more than stays in a socket's buffer unseen."""


@contextmanager
def _lane(high_water_mark: int) -> Iterator[Lane]:
    with Network(Endpoint(host="127.0.0.1", port=0), PortRange(), Gate(None)) as network:
        lane = network.lane(high_water_mark, Guest(until_ns=0))
        assert lane is not None
        try:
            yield lane
        finally:
            lane.close()


@contextmanager
def _pull(lane: Lane) -> Iterator["zmq.Socket[bytes]"]:
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.setsockopt(zmq.RCVHWM, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, SOON_MS)
        socket.connect(f"tcp://127.0.0.1:{lane.port}")
        assert lane.socket.poll(SOON_MS, zmq.POLLOUT)
        yield socket


def _payload(number: int) -> memoryview:
    return np.full(PAYLOAD, number, np.uint8).data


@pytest.mark.parametrize("high_water_mark", [1, 2, 3])
def test_payloads_that_come_apart_follow_their_headers_whatever_room_there_is(high_water_mark: int) -> None:
    frames, owed, sent = list[bytes](), 0, 0
    with _lane(high_water_mark) as lane, _pull(lane) as pull:
        poller = zmq.Poller()
        poller.register(pull, zmq.POLLIN)
        while len(frames) < 100:
            # Every third message is whole: it must not overtake what is owed.
            while sent < 60 and (
                lane.send_apart(b"head %d" % sent, _payload(sent)) if sent % 3 else lane.send(_payload(sent))
            ):
                sent += 1
            owed += lane.owes
            poller.register(lane.socket, zmq.POLLOUT if lane.owes or sent < 60 else 0)
            ready = dict(poller.poll(SOON_MS))
            assert ready, "nothing comes and nothing may be sent"
            lane.settle()
            if pull in ready:
                frame = pull.recv()
                frames.append(frame if frame.startswith(b"head") else frame[:1])
    due: list[bytes] = []
    for number in range(60):
        due += [b"head %d" % number] if number % 3 else []
        due += [bytes((number,))]
    assert frames == due
    assert owed, "the lane was never so full that a payload had to wait"


def test_a_lane_without_its_rank_takes_nothing() -> None:
    with _lane(1) as lane:
        assert not lane.has_room
        assert not lane.send(_payload(2))
        assert not lane.send_apart(b"head", _payload(3))
        assert not lane.owes


def test_a_lane_that_is_closed_lets_go_of_what_it_owes() -> None:
    with _lane(1) as lane:
        with _pull(lane):
            memory = np.zeros(PAYLOAD, np.uint8)
            while lane.send_apart(b"head", memory.data):
                pass
            assert lane.owes
        lane.close()
        reference = weakref.ref(memory)
        del memory
    # The context is gone: what libzmq had queued is gone with it, and the lane keeps nothing.
    assert reference() is None
