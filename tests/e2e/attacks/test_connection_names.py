"""One who gives his connection a name that libzmq is about to give to the next connection.

Covers: the first names that libzmq gives where its random numbers were never seeded. Does not cover: names that cannot be known
before (docs/adr/0016).
"""

import ctypes
from pathlib import Path

import zmq

from emlio import EmlioLoader
from emlio.testing.datasets import make_dataset
from emlio.testing.processes import DaemonProcess

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
            daemon.wait_for_log("was not understood")
            for squatter in squatters:
                assert squatter.poll(10_000), "each has an answer, so each has its name"
            with EmlioLoader(daemon.address("data"), batch_size=10, raw=True, to="numpy", timeout="5s") as loader:
                assert sum(len(batch["record"]) for batch in loader) == RECORDS
        finally:
            for squatter in squatters:
                squatter.close()
        assert daemon.running, daemon.log
