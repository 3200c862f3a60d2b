"""Attackers whom nobody admitted: on the control port, by the thousand, with frames that no ZeroMQ library sends.

Covers: no key, another key, sizes that are too large, silence, 2,000 idle connections, a byte a second, messages that would be
hard to decode if they were. Does not cover: lanes and their tokens (test_lanes.py).
"""

import time
from contextlib import suppress

import pytest
import zmq

from emlio.wire.control import encode_control
from emlio.wire.limits import MAX_CONTROL_BYTES, MAX_LANE_COMMAND_BYTES
from emlio_testing.attacks.insiders import hello_of
from emlio_testing.attacks.strangers import GREETING_BYTES, Crowd, Stranger, dealer, frame, greeting, many_descriptors
from tests.e2e.attacks.insiders import enveloped, nested, wide_map
from tests.e2e.attacks.siege import HANDSHAKE_S, OPEN, Siege

HUNG_UP_S = 3 * HANDSHAKE_S
"""The handshake's time, and as much again twice for a machine whose cores are busy with other things."""

IDLE = 2000
DRIPPING = 300
FLOOD_BYTES = 64 << 20


def port_of(siege: Siege, port: str) -> str:
    return siege.daemon.peer if port == "control" else f"127.0.0.1:{siege.daemon.data_port}"


def say(peer: "zmq.Socket[bytes]", data: bytes) -> None:
    """As far as libzmq takes it: it gives up a connection that was refused, and queues nothing for it then."""
    with suppress(zmq.Again):
        peer.send(data, zmq.DONTWAIT)


@pytest.mark.parametrize("keys", ["none", "another's", "one that expects another daemon"])
def test_without_a_key_that_is_known_one_hears_nothing(siege: Siege, keys: str) -> None:
    store, rank, stranger = (folder.pair() for folder in (siege.keys.store, siege.keys.rank, siege.keys.stranger))
    shown = {
        "none": (None, None),
        "another's": (stranger, store.public),
        "one that expects another daemon": (rank, stranger.public),
    }
    with dealer(siege.daemon.endpoint, *shown[keys]) as peer:
        for _ in range(20):
            say(peer, encode_control(hello_of(OPEN)))
        assert not peer.poll(2000, zmq.POLLIN)
    siege.is_unharmed()


@pytest.mark.parametrize("mechanism", [b"NULL", b"PLAIN", b"CURVE", b"GSSAPI"])
def test_who_begins_to_speak_zeromq_learns_that_it_is_spoken_here_and_no_more(siege: Siege, mechanism: bytes) -> None:
    with Stranger(siege.daemon.peer) as one:
        one.say(greeting(mechanism))
        ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
        one.say(frame(ready, command=True) + frame(encode_control(hello_of(OPEN))))
        assert one.listen(HUNG_UP_S)
        assert len(one.heard) <= 2 * GREETING_BYTES
        siege.told_nothing(one.heard)
    siege.is_unharmed()


@pytest.mark.parametrize("port", ["control", "lane"])
@pytest.mark.parametrize("command", [True, False], ids=["command", "message"])
def test_a_frame_larger_than_any_is_hung_up_on_before_it_takes_memory(siege: Siege, port: str, command: bool) -> None:
    limit = MAX_CONTROL_BYTES if port == "control" else MAX_LANE_COMMAND_BYTES
    mechanism = b"CURVE" if port == "control" else b"PLAIN"
    for said in (1 << 63, (1 << 64) - 1, 1 << 31, limit + 1):
        with Stranger(port_of(siege, port)) as one:
            one.say(greeting(mechanism))
            one.hears(GREETING_BYTES)
            one.say(frame(b"", command=command, said_bytes=said))
            taken = 0
            while taken < FLOOD_BYTES and one.say(bytes(1 << 20)):
                taken += 1 << 20
            assert taken < FLOOD_BYTES, f"a frame of {said} bytes"
            siege.told_nothing(one.heard)
    siege.is_unharmed()


@pytest.mark.parametrize("port", ["control", "lane"])
def test_short_frames_and_then_silence_are_hung_up_on(siege: Siege, port: str) -> None:
    mechanism = b"CURVE" if port == "control" else b"PLAIN"
    beginnings = (
        b"",
        b"\xff",
        greeting(mechanism)[:30],
        greeting(mechanism),
        greeting(mechanism) + b"\x04",
        greeting(mechanism) + frame(b"", command=True),
        greeting(mechanism) + frame(b"\x05", command=True),
        greeting(mechanism) + frame(b"\x05HELLO", command=True),
        greeting(mechanism) + frame(b"\x05HELLO" + bytes(194), command=True),
        greeting(mechanism) + frame(bytes(50), command=True, said_bytes=4000),
    )
    strangers = [Stranger(port_of(siege, port)) for _ in beginnings]
    for one, beginning in zip(strangers, beginnings, strict=True):
        one.say(beginning)
    deadline = time.monotonic() + HUNG_UP_S
    for one, beginning in zip(strangers, beginnings, strict=True):
        with one:
            assert one.listen(deadline - time.monotonic()), beginning
            siege.told_nothing(one.heard)
    siege.is_unharmed()


@pytest.mark.parametrize("port", ["control", pytest.param("lane", marks=pytest.mark.slow)])
def test_two_thousand_idle_connections_keep_nobody_out_and_are_hung_up_on(siege: Siege, port: str) -> None:
    with many_descriptors(IDLE + 500), Crowd(port_of(siege, port), IDLE) as crowd, siege.new_rank() as late:
        siege.reads(late)
        assert crowd.listen(HUNG_UP_S), f"{crowd.connections} were not hung up on"
        siege.told_nothing(crowd.heard)
        assert siege.reads(late)["epochs"] > 1
    siege.is_unharmed()


def test_connections_that_say_a_byte_a_second_get_no_more_time_than_others(siege: Siege) -> None:
    begun = time.monotonic()
    with Crowd(siege.daemon.peer, DRIPPING) as crowd:
        for byte in greeting():
            crowd.say(bytes((byte,)))
            if crowd.listen(1.0):
                break
        assert not crowd.connections
        assert time.monotonic() - begun < HUNG_UP_S + HANDSHAKE_S
        siege.told_nothing(crowd.heard)
    siege.is_unharmed()


@pytest.mark.parametrize(
    "body",
    [
        nested(10_000),
        wide_map(1_000_000),
        *(kind + b"\xff\xff\xff\xff" for kind in (b"\xdb", b"\xc6", b"\xdd", b"\xdf")),
    ],
    ids=["nested", "wide", "text", "bytes", "array", "map"],
)
def test_what_would_be_hard_to_decode_is_not_decoded_for_a_stranger(siege: Siege, body: bytes) -> None:
    stranger, store = siege.keys.stranger.pair(), siege.keys.store.pair().public
    with dealer(siege.daemon.endpoint, stranger, store) as peer, Stranger(siege.daemon.peer) as raw:
        say(peer, enveloped(body))
        raw.say(greeting(b"CURVE") + frame(enveloped(body), command=True))
        assert raw.listen(HUNG_UP_S)
        assert not peer.poll(500, zmq.POLLIN)
        siege.told_nothing(raw.heard)
    assert "invalid control message" not in siege.daemon.log
    siege.is_unharmed()
