"""A state of the model: what the rank knows, what each daemon does, and what lies in between.

Covers: the values and what they mean. Does not cover: how one becomes another (protocol_moves).
"""

from enum import IntEnum
from typing import NamedTuple

__all__ = ["CLOSED", "Feed", "Lane", "Message", "Phase", "Side", "State"]


class Phase(IntEnum):
    """Where the rank is with a daemon."""

    LOST = 0  # hung up on, not called again yet
    CALLING = 1  # said hello, offers the plan
    IDLE = 2  # agreed; nothing is wanted of it
    OPENING = 3  # ordered a stream, waits for its lanes
    STREAMING = 4  # connected to the lanes


class Message(NamedTuple):
    """A data message in a lane; with no places it is of the next epoch.

    `after_loss`: messages between the one before and this one were lost. It stands for the gap in the lane's numbers, which
    would otherwise make the states endless.
    """

    stream: int
    places: tuple[int, ...]
    after_loss: bool


class Lane(NamedTuple):
    """A connection from a daemon to the rank.

    Attributes:
        queue: what is under way, the next first.
        up: whether it is connected; it connects again by itself.
        lost: messages were lost and none came after them yet.
        held: the first was read, and waits for room in the window.
    """

    queue: tuple[Message, ...] = ()
    up: bool = True
    lost: bool = False
    held: bool = False


CLOSED: tuple[Lane, ...] = ()


class Feed(NamedTuple):
    """What a daemon was ordered to send: the stream's number, and the places that are left."""

    stream: int
    left: tuple[int, ...]


class Side(NamedTuple):
    """A daemon, the rank's view of it and what is between them.

    Attributes:
        alive: the process runs.
        known: the daemon knows the session of this connection, or will when it hears the hello.
        phase: the rank's.
        ordered: how many streams were ordered in this session; the number of the newest.
        reopened: what it sends may repeat places that are here.
        excused: something went wrong with it since its stream was opened: the rank may lose it, or open it again.
        up: control messages to the daemon: "hello", an order (stream, places), or "stop".
        down: control messages to the rank: "agreed" or the number of a stream that was opened.
        feed: what the daemon sends.
        tap: the number of the stream whose lanes the rank is connected to, 0 for none.
        lanes: those.
    """

    alive: bool = True
    known: bool = True
    phase: Phase = Phase.LOST
    ordered: int = 0
    reopened: bool = False
    excused: bool = False
    up: tuple[str | Feed, ...] = ()
    down: tuple[str | int, ...] = ()
    feed: Feed | None = None
    tap: int = 0
    lanes: tuple[Lane, ...] = CLOSED


class State(NamedTuple):
    """The whole.

    Attributes:
        faults: how many may still happen.
        here: the places that are here, as bits.
        sides: both daemons.
        lent: shards that the rank moved away from one that was slow, and to whom.
        broken: the invariant that the step to this state broke, if any.
    """

    faults: int
    here: int
    sides: tuple[Side, ...]
    lent: tuple[tuple[int, int], ...] = ()
    broken: str = ""
