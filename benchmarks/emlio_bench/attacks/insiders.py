"""An attacker whose key is admitted: a control connection that can send anything, in any number.

Covers: hello, a plan, streams, bytes that are no message. Does not cover: attackers without an
admitted key (emlio_bench.attacks.strangers).
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
from emlio.wire.control import (
    PROTOCOL_VERSION,
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
from emlio.wire.credit import Credit
from emlio.wire.seal import CIPHERS, new_secret
from emlio_bench.attacks.strangers import dealer

__all__ = ["CREDIT", "Insider", "enveloped", "hello_of", "insider", "nested", "wide_map"]

CREDIT = Credit(read_bytes=0, stream=1, allowed_bytes=64 << 20, epoch=1)
"""The credit of an insider's first stream."""

_Message = TypeVar("_Message")


def enveloped(body: bytes) -> bytes:
    """Return a control message with this body, whatever it is."""
    return b"\xe3M" + bytes((PROTOCOL_VERSION,)) + crc32c(body).to_bytes(4, "little") + body


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
        rows: the dataset's shards.
    """

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.socket = socket
        self.session = 0
        self.secret = b""
        self.rows: list[ShardRow] = []

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

    def receive_a(self, kind: type[_Message]) -> _Message:
        """Return the next answer of this kind; others are dropped."""
        while True:
            answer = self.receive()
            if isinstance(answer, kind):
                return answer

    def ask(self, message: ControlMessage, kind: type[_Message]) -> _Message:
        """Send a message and return the answer, which must be of this kind."""
        self.send(message)
        answer = self.receive()
        assert isinstance(answer, kind), answer
        return answer

    def greet(self, hello: Hello) -> None:
        """Begin a session, and get the list of shards."""
        self.secret = hello.lane_secret
        self.session = self.ask(hello, Welcome).session
        self.rows = list(self.ask(ShardsRequest(session=self.session, first=0), ShardsReply).rows)

    def offer(self, rows: list[ShardRow], *, fingerprint: str = "", digest: str = "") -> PlanOffer:
        """Return the offer of a plan over these shards.

        It may have another fingerprint or digest than the plan's.
        """
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
        """Agree to a plan of the daemon's shards."""
        assert self.ask(self.offer(self.rows), PlanReply) == PlanReply(need_catalog=False)

    def order(self, stream: int, *, lanes: int = 1) -> Open:
        """Return an order for all shards from the beginning on."""
        owned = (1 << len(self.rows)) - 1
        return Open(
            session=self.session, stream=stream, epoch=0, origin=0, slot=0, lanes=lanes,
            owned=owned.to_bytes((len(self.rows) + 7) // 8, "little"), credit=CREDIT,
        )  # fmt: skip

    def open(self, stream: int = 1, *, lanes: int = 1) -> Opened:
        """Open a stream."""
        return self.ask(self.order(stream, lanes=lanes), Opened)


@contextmanager
def insider(endpoint: str, pair: KeyPair, daemon: PublicKey) -> Generator[Insider, None, None]:
    """Connect an insider to this daemon."""
    with dealer(endpoint, pair, daemon) as socket:
        yield Insider(socket)


def nested(depth: int) -> bytes:
    """Return nested arrays."""
    return b"\x91" * depth + b"\xc0"


def wide_map(entries: int) -> bytes:
    """Return a map with this many equal entries, none of which belongs to a message."""
    return b"\xdf" + entries.to_bytes(4, "big") + b"\xa1x\xc0" * entries
