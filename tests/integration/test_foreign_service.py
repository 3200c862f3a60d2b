"""Something that is no daemon answers at a daemon's port.

Covers: one that was never there as a daemon, at the end of the loader's patience. Does not cover: daemons with other keys
(test_trust), daemons that are lost (test_loader_faults), noise on the way of a real one (tests/e2e/test_recovery).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest
import zmq

from emlio import EmlioLoader, Recovery, Security
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
    address = f"emlio://127.0.0.1:{port}/x"
    return EmlioLoader(
        address,
        batch_size=2,
        raw=True,
        to="numpy",
        recovery=Recovery(timeout="600ms"),
        security=Security(keys=str(tmp_path)),
    )


@pytest.mark.parametrize("answers", [1, 2, 100])
def test_a_service_that_speaks_another_language_is_named_as_that(answers: int, tmp_path: Path) -> None:
    with (
        service([b"220 mail.example.org ESMTP"] * answers) as port,
        pytest.raises(RemoteProtocolError, match=f"the daemon at 127.0.0.1:{port}: "),
    ):
        load(port, tmp_path)


def test_the_log_says_how_often_such_a_service_is_called_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with service([b"220 mail.example.org ESMTP"] * 100) as port, pytest.raises(RemoteProtocolError):
        load(port, tmp_path)
    (told,) = caplog.messages
    assert told.endswith("; reconnecting, at most 3 times")


@contextmanager
def stream_service(greeting: bytes, answer: bytes | None) -> Iterator[int]:
    """Greets each connection, and answers what it says first and hangs up; the port. With None it says no more."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(greeting)
            self.request.recv(1 << 12)
            if answer is not None:
                self.request.sendall(answer)
                return
            while self.request.recv(1 << 12):
                continue

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="stream service")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("greeting", "answer", "what"),
    [
        pytest.param(
            b"SSH-2.0-OpenSSH_9.6\r\n", None, "no answer came, although the port accepts connections", id="SSH"
        ),
        pytest.param(b"", None, "no answer came, although the port accepts connections", id="nothing is said"),
        pytest.param(
            b"",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "it closed the connection without an answer, .* a data port",
            id="HTTP",
        ),
    ],
)
def test_the_error_for_a_service_of_another_protocol_says_once_what_it_does(
    greeting: bytes, answer: bytes | None, what: str, tmp_path: Path
) -> None:
    with stream_service(greeting, answer) as port, pytest.raises(PeerLostError) as lost:
        load(port, tmp_path)
    hint = r"\(attempts: [0-9]+\)\. Check that emlio-daemon is running there and .*"
    said = rf"the daemon at 127\.0\.0\.1:{port} must answer within 600 ms, {what} {hint}"
    assert re.fullmatch(said, str(lost.value))


def test_what_is_not_called_again_is_not_said_to_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with service([]) as port, pytest.raises(PeerLostError, match=r"\(attempts: 1\)"):
        load(port, tmp_path)  # its heartbeat, 3 s, counts as its timeout
    assert caplog.messages == []


def test_a_service_that_says_nothing_is_nobody(tmp_path: Path) -> None:
    with service([]) as port, pytest.raises(PeerLostError, match="must answer within 600 ms, no answer came"):
        load(port, tmp_path)
