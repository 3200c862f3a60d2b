"""One who gives himself a name: of a connection that libzmq is about to make, or of a user.

Covers: the first names that libzmq gives where its random numbers were never seeded; the user's name of one who shows no key.
Does not cover: names that cannot be known before (docs/internals/decisions/libzmq.md).
"""

import ctypes
from pathlib import Path

import pytest
import zmq

from emlio import EmlioLoader, Recovery
from emlio_bench.attacks.strangers import Stranger, frame, greeting
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess

RECORDS = 200
SOCKETS, AHEAD = 3, 16


def names_without_a_seed() -> list[bytes]:
    """The first names of each of the first sockets: a zero byte, and four of a number that the C library draws."""
    library = ctypes.CDLL(None)
    library.srand(1)
    first = [(library.rand() | library.rand() << 31) & 0xFFFFFFFF for _ in range(SOCKETS)]
    return [b"\0" + (one + more & 0xFFFFFFFF).to_bytes(4, "big") for one in first for more in range(AHEAD)]


def test_a_name_that_the_next_connection_would_get_does_not_end_the_daemon(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=RECORDS, shards=2)
    with DaemonProcess({"data": tmp_path / "data"}, folder=tmp_path) as daemon, zmq.Context() as context:
        squatters = [context.socket(zmq.DEALER) for _ in names_without_a_seed()]
        try:
            for squatter, name in zip(squatters, names_without_a_seed(), strict=True):
                squatter.setsockopt(zmq.LINGER, 0)
                squatter.setsockopt(zmq.ROUTING_ID, name)
                squatter.connect(daemon.endpoint)
                squatter.send(b"not of the protocol")
            daemon.wait_for_log("invalid control message")
            for squatter in squatters:
                assert squatter.poll(10_000), "each has an answer, so each has its name"
            with EmlioLoader(
                daemon.address("data"), batch_size=10, raw=True, to="numpy", recovery=Recovery(timeout="5s")
            ) as loader:
                assert sum(len(batch["record"]) for batch in loader) == RECORDS
        finally:
            for squatter in squatters:
                squatter.close()
        assert daemon.running, daemon.log


@pytest.mark.parametrize("user", [b"zz", b"\xff\xfe", b"6b6579"])
def test_a_stranger_who_names_himself_does_not_end_a_daemon_that_asks_for_no_keys(tmp_path: Path, user: bytes) -> None:
    def named(name: bytes, value: bytes) -> bytes:
        return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value

    make_dataset(tmp_path / "data", records=20, shards=2)
    with DaemonProcess({"data": tmp_path / "data"}, folder=tmp_path) as daemon:
        stranger = Stranger(daemon.endpoint.removeprefix("tcp://"))
        stranger.say(greeting(b"NULL"))
        told = named(b"Socket-Type", b"DEALER") + named(b"Identity", b"") + named(b"User-Id", user)
        stranger.say(frame(b"\x05READY" + told, command=True))
        stranger.listen(0.3)
        stranger.say(frame(b"hello"))
        daemon.wait_for_log("invalid control message")
        with EmlioLoader(
            daemon.address("data"), batch_size=10, raw=True, to="numpy", recovery=Recovery(timeout="5s")
        ) as loader:
            assert sum(len(batch["record"]) for batch in loader) == 20
        assert daemon.running, daemon.log
        stranger.close()
