"""An attacker whose key is admitted: a control connection with the means to say anything, in any number.

Covers: hello, a plan, streams, bytes that are no message. Does not cover: strangers (emlio.testing.attackers).
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

import zmq

from emlio.checksum import crc32c
from emlio.keys.curve import KeyPair
from emlio.keys.key import PublicKey
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.plan import Plan, PlanSpec
from emlio.testing.attackers import dealer
from emlio.wire.control import (
    ControlMessage,
    Hello,
    Open,
    Opened,
    PlanOffer,
    PlanReply,
    ShardRow,
    ShardsReply,
    ShardsRequest,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.seal import CIPHERS

__all__ = ["Insider", "enveloped", "hello_of", "insider", "nested", "wide_map"]

_Message = TypeVar("_Message")


def enveloped(body: bytes) -> bytes:
    """A control message with this body, whatever it is."""
    return b"\xe3M\x01" + crc32c(body).to_bytes(4, "little") + body


def hello_of(
    dataset: str, *, rank: int = 0, world_size: int = 1, job: str = "mischief", protections: tuple[str, ...] = CIPHERS
) -> Hello:
    """Of a rank that does not exist."""
    return Hello(
        job=job, client="c", rank=rank, world_size=world_size, dataset=dataset, host="h", pid=1, software="0",
        protections=protections,
    )  # fmt: skip


class Insider:
    """See the module.

    Attributes:
        socket: the control connection.
        session: the session's number.
        rows: the dataset's shards.
    """

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.socket = socket
        self.session = 0
        self.rows: list[ShardRow] = []

    def send(self, message: ControlMessage) -> None:
        """Without waiting for an answer."""
        self.socket.send(encode_control(message))

    def pour(self, data: bytes, count: int) -> int:
        """Send the same as often, as far as the daemon takes it; how often it did."""
        for sent in range(count):
            try:
                self.socket.send(data, zmq.DONTWAIT)
            except zmq.Again:
                if not self.socket.poll(500, zmq.POLLOUT):
                    return sent
                self.socket.send(data, zmq.DONTWAIT)
        return count

    def receive(self) -> ControlMessage:
        """The next answer."""
        return decode_control(self.socket.recv())

    def receive_a(self, kind: type[_Message]) -> _Message:
        """The next answer of this kind; others are dropped."""
        while True:
            answer = self.receive()
            if isinstance(answer, kind):
                return answer

    def ask(self, message: ControlMessage, kind: type[_Message]) -> _Message:
        """What is answered, which must be of this kind."""
        self.send(message)
        answer = self.receive()
        assert isinstance(answer, kind), answer
        return answer

    def greet(self, hello: Hello) -> None:
        """Have a session, and the list of shards."""
        self.session = self.ask(hello, Welcome).session
        self.rows = list(self.ask(ShardsRequest(session=self.session, first=0), ShardsReply).rows)

    def offer(self, rows: list[ShardRow], *, fingerprint: str = "", digest: str = "") -> PlanOffer:
        """The offer of a plan over these shards; with another fingerprint or digest where one is given."""
        entries = (
            ShardEntry(name=row.name, records=row.records, size_bytes=row.size_bytes, digest=row.digest) for row in rows
        )
        plan = Plan(Catalog(shards=tuple(entries)), PlanSpec(batch_size=20))
        spec = plan.spec
        return PlanOffer(
            session=self.session,
            fingerprint=fingerprint or plan.catalog.fingerprint,
            digest=digest or plan.digest,
            seed=spec.seed,
            shuffle=spec.shuffle.mode.value,
            block_records=spec.shuffle.block_records,
            window_blocks=spec.shuffle.window_blocks,
            batch_size=20,
            drop_last=spec.drop_last,
            pad=spec.pad,
        )

    def agree(self) -> None:
        """To the plan of what is there."""
        assert self.ask(self.offer(self.rows), PlanReply) == PlanReply(need_catalog=False)

    def order(self, stream: int, *, lanes: int = 1) -> Open:
        """All shards from the beginning on."""
        owned = (1 << len(self.rows)) - 1
        return Open(
            session=self.session, stream=stream, epoch=0, origin=0, slot=0, lanes=lanes,
            owned=owned.to_bytes((len(self.rows) + 7) // 8, "little"),
        )  # fmt: skip

    def open(self, stream: int = 1, *, lanes: int = 1) -> Opened:
        """Have a stream."""
        return self.ask(self.order(stream, lanes=lanes), Opened)


@contextmanager
def insider(endpoint: str, pair: KeyPair, daemon: PublicKey) -> Generator[Insider, None, None]:
    """One at this daemon."""
    with dealer(endpoint, pair, daemon) as socket:
        yield Insider(socket)


def nested(depth: int) -> bytes:
    """Arrays in arrays."""
    return b"\x91" * depth + b"\xc0"


def wide_map(entries: int) -> bytes:
    """A map with so many entries, all of them alike and none of a message."""
    return b"\xdf" + entries.to_bytes(4, "big") + b"\xa1x\xc0" * entries
