"""An insider that knows the protocol: a plan, streams, lanes; and bytes that are no message.

Covers: what tests send beyond what the benchmark of attacks sends (emlio_testing.attacks.insiders).
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
    Hello,
    Open,
    Opened,
    PlanOffer,
    PlanReply,
    ShardRow,
    ShardsReply,
    ShardsRequest,
)
from emlio.wire.credit import Credit
from emlio.wire.seal import lane_group, lane_name, lane_token
from emlio_testing.attacks import insiders
from emlio_testing.attacks.strangers import ANSWER_S, dealer

__all__ = ["CREDIT", "Insider", "enveloped", "insider", "lane_in", "nested", "wide_map"]

CREDIT = Credit(read_bytes=0, stream=1, allowed_bytes=64 << 20, epoch=1)
"""The credit of an insider's first stream."""

_Message = TypeVar("_Message")


def enveloped(body: bytes) -> bytes:
    """Return a control message with this body, whatever it is."""
    return b"\xe3M" + bytes((PROTOCOL_VERSION,)) + crc32c(body).to_bytes(4, "little") + body


class Insider(insiders.Insider):
    """A control connection of an admitted attacker.

    Attributes:
        rows: the dataset's shards.
    """

    rows: list[ShardRow]

    def greet(self, hello: Hello) -> None:
        """Begin a session, and get the list of shards."""
        super().greet(hello)
        self.rows = list(self.ask(ShardsRequest(session=self.session, first=0), ShardsReply).rows)

    def receive_a(self, kind: type[_Message]) -> _Message:
        """Return the next answer of this kind; others are dropped."""
        while True:
            answer = self.receive()
            if isinstance(answer, kind):
                return answer

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


def lane_in(
    context: "zmq.Context[zmq.Socket[bytes]]",
    port: int,
    secret: bytes,
    number: int,
    *,
    token: bytes | None = None,
    name: bytes | None = None,
) -> "zmq.Socket[bytes]":
    """Return a lane of the session with this secret; the caller closes it.

    Args:
        context: the ZeroMQ context.
        port: the daemon's data port.
        secret: the secret of the session.
        number: the number of the lane.
        token: the token to send instead of the right one.
        name: the name of the lane instead of the right one.
    """
    options: list[tuple[int, int | bytes]] = [
        (zmq.LINGER, 0),
        (zmq.RECONNECT_IVL, -1),
        (zmq.RCVHWM, 1),
        (zmq.RCVTIMEO, int(ANSWER_S * 1000)),
        (zmq.SNDTIMEO, int(ANSWER_S * 1000)),
        (zmq.ROUTING_ID, lane_name(secret, number) if name is None else name),
        (zmq.PLAIN_USERNAME, f"{lane_group(secret)}.{number}".encode("ascii")),
        (zmq.PLAIN_PASSWORD, lane_token(secret, number) if token is None else token),
    ]
    peer = context.socket(zmq.DEALER)
    try:
        for option, value in options:
            peer.setsockopt(option, value)
        peer.connect(f"tcp://127.0.0.1:{port}")
    except BaseException:
        peer.close()
        raise
    return peer


def nested(depth: int) -> bytes:
    """Return nested arrays."""
    return b"\x91" * depth + b"\xc0"


def wide_map(entries: int) -> bytes:
    """Return a map with this many equal entries, none of which belongs to a message."""
    return b"\xdf" + entries.to_bytes(4, "big") + b"\xa1x\xc0" * entries
