"""The daemons of an exhaustive search, and all that lies between them and the rank.

A daemon is as small as can be: it answers, reads what it is ordered, and sends what the two credits allow, by the real rules.

Covers: the values, and what a daemon does with what it hears. Does not cover: the rank (rank_state), what goes wrong (mishaps).
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from world import RECORD_BYTES, World, frame_of

from emlio.errors import RemoteProtocolError
from emlio.session.credits import LaneCredit, StreamCredit
from emlio.wire.credit import Credit

__all__ = [
    "Feed",
    "Heard",
    "Lane",
    "LaneState",
    "Message",
    "Side",
    "credited",
    "hear",
    "sends",
    "vanished",
    "with_lane",
]


class LaneState(IntEnum):
    """Of a connection."""

    CONNECTING = 0
    UP = 1
    SILENT = 2  # carries nothing any more, and neither end knows
    ENDED = 3  # what arrived can be read; the rank has not noticed the end


class Message(NamedTuple):
    """A data message in a lane."""

    session: int
    stream: int
    number: int
    places: tuple[int, ...]
    sequence: int


class Lane(NamedTuple):
    """A connection from a daemon to the rank.

    Attributes:
        number: in the session.
        state: see `LaneState`.
        queue: what is under way, the next first.
        sequence: the number of the next message in this lane.
        sent, heard: bytes given to it, and of those the ones that the rank said it has read.
        told: the rank knows that it came up.
        credit: what the rank said last, which the daemon has not heard. Credits are totals: it stands for all before it.
    """

    number: int
    state: LaneState = LaneState.CONNECTING
    queue: tuple[Message, ...] = ()
    sequence: int = 0
    sent: int = 0
    heard: int = 0
    told: bool = False
    credit: Credit | None = None


class Heard(NamedTuple):
    """A stream's credit as a daemon knows it."""

    allowed: int = 0
    place: tuple[int, int] = (0, 0)
    must: tuple[int, int] = (0, 0)


class Feed(NamedTuple):
    """What a daemon was ordered to send: the stream's number, the places that are left, messages and bytes sent, its credit."""

    stream: int
    left: tuple[int, ...]
    number: int = 0
    sent: int = 0
    credit: Heard = Heard()


class Side(NamedTuple):
    """A daemon, and what is between it and the rank.

    Attributes:
        alive: the process runs.
        linked: the control connection carries what is said.
        known: the daemon has a session for this connection.
        session: its number.
        up: control messages to the daemon.
        down: control messages to the rank.
        feed: what the daemon sends.
        lanes: those that the rank has not closed.
        ordered: the newest stream that the rank ordered over this connection.
        excused: something went wrong since its stream was opened: the rank may lose it, or open it again.
    """

    alive: bool = True
    linked: bool = False
    known: bool = False
    session: int = 0
    up: tuple[Any, ...] = ()
    down: tuple[Any, ...] = ()
    feed: Feed | None = None
    lanes: tuple[Lane, ...] = ()
    ordered: int = 0
    excused: bool = False


def with_lane(side: Side, lane: Lane) -> Side:
    """The side with this lane in the place of the one of its number."""
    return side._replace(lanes=tuple(lane if other.number == lane.number else other for other in side.lanes))


# ---- control --------------------------------------------------------------------------------------------------------


def hear(world: World, side: Side) -> Side:
    """The daemon takes the rank's next message; an order replaces the stream before, over the same lanes."""
    said, *rest = side.up[0]
    side = side._replace(up=side.up[1:])
    match said:
        case "hello":
            session = side.session + 1
            return side._replace(known=True, session=session, feed=None, down=(*side.down, ("welcome", session)))
        case "offer":
            (first,) = rest
            side = side._replace(down=(*side.down, ("agreed",)))
            return side if first is None else _begin(world, side, *first)
        case "open":
            return _begin(world, side, *rest)
        case "stop":
            return side._replace(feed=None)
        case _:
            raise AssertionError(f"a rank must not say {said}")


def _begin(world: World, side: Side, stream: int, slot: int, owned: bytes, credit: Credit) -> Side:
    feed = Feed(stream, world.feed(owned, slot))
    feed = feed._replace(credit=_hears(feed, credit))
    return side._replace(feed=feed, down=(*side.down, ("opened", stream)))


# ---- data -----------------------------------------------------------------------------------------------------------


def sends(world: World, side: Side, lane: Lane) -> Iterator[tuple[Message, Side]]:
    """The next message of the feed over a lane, cut at each length that there may be and that the credits allow."""
    feed = side.feed
    if feed is None or lane.state not in (LaneState.UP, LaneState.SILENT):
        return
    for count in range(1, min(world.largest, len(feed.left)) + 1):
        places, size_bytes = feed.left[:count], count * RECORD_BYTES
        if not _credit_of(feed).allows((0, places[0]), size_bytes):
            continue
        message = Message(side.session, feed.stream, feed.number, places, lane.sequence)
        frame = frame_of(world, side.session, feed.stream, feed.number, places, lane.number, lane.sequence)
        if not _lane_credit(world, lane).allows(len(frame)):
            continue
        after = side._replace(
            feed=feed._replace(left=feed.left[count:], number=feed.number + 1, sent=feed.sent + size_bytes)
        )
        silent = lane.state is LaneState.SILENT
        queue = lane.queue if silent else (*lane.queue, message)
        taken = lane._replace(queue=queue, sequence=lane.sequence + 1, sent=lane.sent + len(frame))
        yield message, with_lane(after, taken)


def credited(world: World, side: Side, lane: Lane) -> tuple[Side, str]:
    """The daemon takes what the rank said last on a lane; what is wrong with that, if anything."""
    credit, feed = lane.credit, side.feed
    if credit is None:
        raise AssertionError("there is nothing to hear")
    account = _lane_credit(world, lane)
    try:
        account.hear(credit.read_bytes)
    except RemoteProtocolError as error:
        return side, str(error)
    if feed is not None:
        side = side._replace(feed=feed._replace(credit=_hears(feed, credit)))
    return with_lane(side, lane._replace(credit=None, heard=account.read_bytes)), ""


def _credit_of(feed: Feed) -> StreamCredit:
    credit: Any = StreamCredit(feed.stream)
    credit.sent_bytes = feed.sent
    credit._bytes, credit._place, credit._must = feed.credit
    return credit  # type: ignore[no-any-return]


def _hears(feed: Feed, said: Credit) -> Heard:
    credit: Any = _credit_of(feed)
    credit.hear(said)
    return Heard(credit._bytes, credit._place, credit._must)


def _lane_credit(world: World, lane: Lane) -> LaneCredit:
    credit = LaneCredit(world.lane_bytes)
    credit.sent_bytes, credit.read_bytes = lane.sent, lane.heard
    return credit


def vanished(side: Side, received_bytes: int) -> bool:
    """Whether the daemon has sent more of the newest stream than came to the rank, though nothing is under way."""
    feed = side.feed
    if feed is None or feed.stream != side.ordered:
        return False
    messages = [message for lane in side.lanes for message in lane.queue if message.stream == side.ordered]
    coming = sum(len(message.places) for message in messages) * RECORD_BYTES
    return feed.sent > received_bytes + coming
