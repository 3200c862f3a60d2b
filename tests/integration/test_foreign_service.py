"""Something that is no daemon answers at a daemon's port.

Covers: one that was never there as a daemon, at the end of the loader's patience. Does not cover: daemons with other keys
(test_trust), daemons that are lost (test_loader_faults), noise on the way of a real one (tests/e2e/test_recovery).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
import zmq

from emlio import EmlioLoader
from emlio.errors import PeerLostError, RemoteProtocolError


@contextmanager
def service(answers: list[bytes]) -> Iterator[int]:
    """Gives these answers to the first that ask, and none to others; the port."""
    with zmq.Context() as context:
        socket, end = context.socket(zmq.ROUTER), context.socket(zmq.PAIR)
        socket.setsockopt(zmq.LINGER, 0)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        end.bind("inproc://end")

        def run() -> None:
            mine = context.socket(zmq.PAIR)
            mine.connect("inproc://end")
            poller = zmq.Poller()
            for one in (socket, mine):
                poller.register(one, zmq.POLLIN)
            while mine not in dict(poller.poll()):
                peer, *_ = socket.recv_multipart()
                if answers:
                    socket.send_multipart([peer, answers.pop(0)])
            mine.close()

        thread = Thread(target=run, name="service")
        thread.start()
        try:
            yield port
        finally:
            end.send(b"")
            thread.join()
            end.close()
            socket.close()


def load(port: int, tmp_path: Path) -> EmlioLoader:
    keys = str(tmp_path / "none")
    return EmlioLoader(f"emlio://127.0.0.1:{port}/x", batch_size=2, raw=True, to="numpy", timeout="600ms", keys=keys)


@pytest.mark.parametrize("answers", [1, 2, 100])
def test_a_service_that_speaks_another_language_is_named_as_that(answers: int, tmp_path: Path) -> None:
    with (
        service([b"220 mail.example.org ESMTP"] * answers) as port,
        pytest.raises(RemoteProtocolError, match=f"the daemon at 127.0.0.1:{port}: "),
    ):
        load(port, tmp_path)


def test_a_service_that_says_nothing_is_nobody(tmp_path: Path) -> None:
    with service([]) as port, pytest.raises(PeerLostError, match="must answer within 600 ms, no answer came"):
        load(port, tmp_path)
