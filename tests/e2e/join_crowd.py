"""Many ranks that join a daemon at once, as sessions without their loaders: what they ask, and when it is answered.

Covers: hello, the list of shards, the offer, and one rank that only pings meanwhile. Does not cover: streams.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator

import zmq

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.wire.control import (
    ControlMessage,
    Hello,
    Ping,
    PlanOffer,
    PlanReply,
    Pong,
    ShardsReply,
    ShardsRequest,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.limits import ROWS_PER_PART
from emlio.wire.seal import new_secret

_TIMEOUT_MS = 120_000


class _Rank:
    """One session at its own connection."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, rank: int, ranks: int, job: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvtimeo = _TIMEOUT_MS
        self.socket.connect(endpoint)
        self.session = 0
        self.shards = 0
        self.say(
            Hello(
                job=job,
                client=f"{job}-{rank}",
                rank=rank,
                world_size=ranks,
                dataset="many",
                host="here",
                pid=1 + rank,
                software="test",
                lane_secret=new_secret(),
            )
        )

    def say(self, message: ControlMessage) -> None:
        self.socket.send(encode_control(message))

    def hear(self, wanted: type[ControlMessage]) -> ControlMessage:
        message = decode_control(self.socket.recv())
        if not isinstance(message, wanted):
            raise TypeError(f"expected {wanted.__name__}, got {message}")
        return message

    def welcome(self) -> None:
        welcome = self.hear(Welcome)
        assert isinstance(welcome, Welcome)
        self.session, self.shards = welcome.session, welcome.shards

    def firsts(self) -> range:
        return range(0, self.shards, ROWS_PER_PART)


def join(endpoint: str, first: int, count: int, ranks: int) -> None:
    """Join as ranks `first` and following; all of them at once."""
    with zmq.Context() as context:
        crowd = [_Rank(context, endpoint, rank, ranks, "crowd") for rank in range(first, first + count)]
        for rank in crowd:
            rank.welcome()
        offer: Callable[[int], PlanOffer] | None = None
        for rank in crowd:
            for begin in rank.firsts():
                rank.say(ShardsRequest(session=rank.session, first=begin))
            if offer is None:
                offer = _offer_of(_rows(rank), ranks)
            else:
                for _ in rank.firsts():
                    rank.socket.recv()  # its bytes are what is asked for here; the first rank has looked into them
        assert offer is not None
        for rank in crowd:
            rank.say(offer(rank.session))
        for rank in crowd:
            reply = rank.hear(PlanReply)
            assert reply == PlanReply(need_catalog=False)
        for rank in crowd:
            rank.socket.close()


def _rows(rank: _Rank) -> Iterator[ShardEntry]:
    for _ in rank.firsts():
        reply = rank.hear(ShardsReply)
        assert isinstance(reply, ShardsReply)
        for row in reply.rows:
            yield ShardEntry(name=row.name, records=row.records, size_bytes=row.size_bytes, digest=row.digest)


def _offer_of(rows: Iterator[ShardEntry], ranks: int) -> Callable[[int], PlanOffer]:
    spec = PlanSpec(batch_size=1, world_size=ranks, shuffle=Shuffle.parse("global"))
    plan = Plan(Catalog(shards=tuple(rows)), spec)

    def offer(session: int) -> PlanOffer:
        return PlanOffer(
            session=session,
            fingerprint=plan.catalog.fingerprint,
            digest=plan.digest,
            seed=spec.seed,
            shuffle=spec.shuffle.mode.value,
            block_records=spec.shuffle.block_records,
            window_blocks=spec.shuffle.window_blocks,
            batch_size=spec.batch_size,
            drop_last=spec.drop_last,
            pad=spec.pad,
        )

    return offer


def ping() -> None:
    """Ping as a rank of another job would, until standard input ends; prints the longest wait for a pong, in seconds."""
    endpoint = sys.argv[2]
    with zmq.Context() as context:
        rank = _Rank(context, endpoint, 0, 1, "running")
        rank.welcome()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        waits: list[float] = []
        poller = zmq.Poller()
        poller.register(sys.stdin.fileno(), zmq.POLLIN)
        while not poller.poll(100):
            began = time.monotonic()
            rank.say(Ping(session=rank.session, nonce=len(waits) + 1))
            rank.hear(Pong)
            waits.append(time.monotonic() - began)
        rank.socket.close()
    sys.stdout.write(json.dumps(max(waits)) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "ping":
        ping()
    else:
        join(sys.argv[2], *map(int, sys.argv[3:]))
