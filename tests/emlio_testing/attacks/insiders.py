"""An attacker whose key is admitted: a control connection that can send anything, in any number.

Covers: hello, messages in any number. Does not cover: attackers without an admitted key
(emlio_testing.attacks.strangers).
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

import zmq

from emlio.keys.curve import KeyPair
from emlio.keys.key import PublicKey
from emlio.wire.control import ControlMessage, Hello, Welcome, decode_control, encode_control
from emlio.wire.seal import CIPHERS, new_secret
from emlio_testing.attacks.strangers import dealer

__all__ = ["Insider", "hello_of", "insider"]

_Message = TypeVar("_Message")


def hello_of(
    dataset: str, *, rank: int = 0, world_size: int = 1, job: str = "mischief", protections: tuple[str, ...] = CIPHERS
) -> Hello:
    """Return the hello of a rank that does not exist, with a new secret."""
    return Hello(
        job=job, client="c", rank=rank, world_size=world_size, dataset=dataset, host="h", pid=1, software="0",
        protections=protections, lane_secret=new_secret(),
    )  # fmt: skip


class Insider:
    """A control connection of an admitted attacker.

    Attributes:
        socket: the control connection.
        session: the session's number.
        secret: the secret from which its lanes are derived.
    """

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.socket = socket
        self.session = 0
        self.secret = b""

    def send(self, message: ControlMessage) -> None:
        """Send a message without waiting for an answer."""
        self.socket.send(encode_control(message))

    def pour(self, data: bytes, count: int) -> int:
        """Send the same data `count` times, as far as the daemon takes it; return how often."""
        for sent in range(count):
            try:
                self.socket.send(data, zmq.DONTWAIT)
            except zmq.Again:
                if not self.socket.poll(500, zmq.POLLOUT):
                    return sent
                self.socket.send(data, zmq.DONTWAIT)
        return count

    def receive(self) -> ControlMessage:
        """Return the next answer."""
        return decode_control(self.socket.recv())

    def ask(self, message: ControlMessage, kind: type[_Message]) -> _Message:
        """Send a message and return the answer, which must be of this kind."""
        self.send(message)
        answer = self.receive()
        assert isinstance(answer, kind), answer
        return answer

    def greet(self, hello: Hello) -> None:
        """Begin a session."""
        self.secret = hello.lane_secret
        self.session = self.ask(hello, Welcome).session


@contextmanager
def insider(endpoint: str, pair: KeyPair, daemon: PublicKey) -> Generator[Insider, None, None]:
    """Connect an insider to this daemon."""
    with dealer(endpoint, pair, daemon) as socket:
        yield Insider(socket)
