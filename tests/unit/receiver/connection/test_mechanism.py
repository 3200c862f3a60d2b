"""Asking a port how it is protected."""

import errno
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import zmq

from emlio.receiver.connection.mechanism import MechanismQuestion
from emlio_testing.processes import run_python

SOON_S = 10.0


def answer(host: str, port: int, wait_s: float = SOON_S) -> tuple[bool, str]:
    """Whether it came to an end, and the mechanism it was told."""
    over, mechanism, _ = outcome(host, port, wait_s)
    return over, mechanism


def outcome(host: str, port: int, wait_s: float = SOON_S) -> tuple[bool, str, int]:
    """The outcome of a connection: if it ended, the mechanism that it was told, the obstacle to it."""
    until = time.monotonic() + wait_s
    with closing(MechanismQuestion(host, port)) as question:
        while not question.over and (left_s := until - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(question.fileno(), select.POLLIN if question.asked else select.POLLOUT)
            if poll.poll(1000 * left_s):
                question.advance()
        return question.over, question.mechanism, question.obstacle


@contextmanager
def zmq_port(host: str, mechanism: str) -> Iterator[int]:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as bound:
        bound.setsockopt(zmq.IPV6, ":" in host)
        if mechanism == "CURVE":
            bound.curve_server, bound.curve_secretkey = 1, zmq.curve_keypair()[1]
        if mechanism == "PLAIN":
            bound.plain_server = 1
        yield bound.bind_to_random_port(f"tcp://[{host}]" if ":" in host else f"tcp://{host}")


@contextmanager
def service(says: bytes | None) -> Iterator[int]:
    """A port whose kernel accepts; `says` is sent at once and then it hangs up; None: it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if says is None:
            yield port
            return

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(says)
                connection.recv(64)

        thread = threading.Thread(target=serve)
        thread.start()
        yield port
        thread.join(SOON_S)


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "CURVE"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_of_libzmq_names_its_mechanism(host: str, mechanism: str) -> None:
    with zmq_port(host, mechanism) as port:
        assert answer(host, port) == (True, mechanism)


def test_a_port_is_asked_while_a_loader_is_hung_up_on_again_and_again() -> None:
    with zmq_port("127.0.0.1", "CURVE") as port:
        assert [answer("127.0.0.1", port) for _ in range(20)] == [(True, "CURVE")] * 20


@pytest.mark.parametrize("says", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 400 Bad Request\r\nServer: CURVE\r\n\r\n"])
def test_a_service_of_another_kind_names_none(says: bytes) -> None:
    with service(says) as port:
        assert answer("127.0.0.1", port) == (True, "")


def test_a_port_that_says_nothing_is_waited_for_without_blocking() -> None:
    with service(None) as port:
        assert answer("127.0.0.1", port, wait_s=0.2) == (False, "")


def test_a_port_that_nobody_listens_on_names_none() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert answer("127.0.0.1", bound.getsockname()[1]) == (True, "")


def test_a_port_that_nobody_listens_on_is_told_from_one_that_hangs_up() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert outcome("127.0.0.1", bound.getsockname()[1]) == (True, "", errno.ECONNREFUSED)
    with service(b"") as port:
        assert outcome("127.0.0.1", port) == (True, "", 0)


@pytest.mark.parametrize("code", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM])
def test_an_obstacle_that_shows_at_once_is_known_at_once(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket(socket.socket):
        def connect_ex(self, address: object) -> int:
            return code

    monkeypatch.setattr(socket, "socket", Socket)
    with closing(MechanismQuestion("192.0.2.1", 7)) as question:
        assert (question.over, question.obstacle) == (True, code)


def test_a_port_that_hangs_up_twice_does_not_end_a_program_that_sigpipe_ends() -> None:
    script = """if True:
        import signal, socket, struct, time
        from emlio.receiver.connection.mechanism import MechanismQuestion
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            question = MechanismQuestion("127.0.0.1", listener.getsockname()[1])
            connection, _ = listener.accept()
            connection.shutdown(socket.SHUT_WR)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            time.sleep(0.1)
            question.advance()
            print(question.over, question.mechanism == "")
            question.close()
    """
    assert run_python("-c", script, timeout_s=SOON_S) == "True True\n"


def test_the_zone_of_an_address_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[object]()

    class Socket(socket.socket):
        def connect_ex(self, address: object) -> int:
            called.append(address)
            return 0

    monkeypatch.setattr(socket, "socket", Socket)
    MechanismQuestion("fe80::1%lo", 7).close()
    assert called == [("fe80::1", 7, 0, socket.if_nametoindex("lo"))]
