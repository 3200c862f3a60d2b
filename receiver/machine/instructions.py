"""The instructions of the rank's machine.

Covers: the values. Does not cover: carrying them out (emlio.receiver.engine.engine,
emlio.receiver.connection.lane_plane).
"""

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import EmlioError
from emlio.planner.plan import Plan
from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.addresses.lane_pass import LanePass
from emlio.receiver.placement.reorder import WholeBatch
from emlio.session.instructions import AnswerCame
from emlio.wire.control import ControlMessage
from emlio.wire.credit import Credit

__all__ = [
    "Answered",
    "Call",
    "CloseLane",
    "ConnectLane",
    "ControlInstruction",
    "DataInstruction",
    "Disconnect",
    "Fail",
    "HandOut",
    "Instruction",
    "Level",
    "LookAtLanes",
    "LookUpNames",
    "Note",
    "ReadHere",
    "Remember",
    "Say",
    "SayCredit",
]

Level = Literal["debug", "info", "warning", "error"]


class Call(msgspec.Struct, frozen=True):
    """Connect to a daemon's control port, in place of any existing connection to it.

    Attributes:
        source: the daemon.
        way: the address; None if none is known: then no connection is made.
    """

    source: int
    way: Peer | None


class Say(msgspec.Struct, frozen=True):
    """Send a control message; before there is a connection it is queued."""

    source: int
    message: ControlMessage


class Disconnect(msgspec.Struct, frozen=True):
    """Disconnect, after giving the last messages this long to leave."""

    source: int
    linger_ms: int


class ConnectLane(msgspec.Struct, frozen=True):
    """Connect a lane."""

    source: int
    lane: int
    endpoint: str
    shown: LanePass


class SayCredit(msgspec.Struct, frozen=True):
    """Tell a daemon on this lane how much of it was read, and what its stream may send.

    The answer may be `LaneFull`.
    """

    source: int
    lane: int
    credit: Credit


class CloseLane(msgspec.Struct, frozen=True):
    """Disconnect a lane; unread messages are dropped."""

    source: int
    lane: int


class LookAtLanes(msgspec.Struct, frozen=True):
    """Report the changes of a daemon's lanes since the last look."""

    source: int


class ReadHere(msgspec.Struct, frozen=True, eq=False):
    """Read these shards of this host from this position on, as far as credit allows.

    Replaces what was read before.

    Attributes:
        source: the number of the stream.
        plan: the plan to read by.
        rank: the rank whose part is read.
        owned: (shards,) the shards to read.
        epoch, origin: where to begin.
        end: the epoch after the last, None without an end.
    """

    source: int
    plan: Plan
    rank: int
    owned: npt.NDArray[np.bool_]
    epoch: int
    origin: int
    end: int | None


class HandOut(msgspec.Struct, frozen=True, eq=False):
    """Hand out complete batches, in this order."""

    generation: int
    batches: list[WholeBatch]


class Answered(msgspec.Struct, frozen=True):
    """Pass a daemon's answer to the thread that asked."""

    source: int
    came: AnswerCame


class Remember(msgspec.Struct, frozen=True):
    """Remember this about the path to an address."""

    way: Peer
    path: KnownPath


class LookUpNames(msgspec.Struct, frozen=True):
    """Look up host names: a daemon is not, or may not be, where it was."""


class Note(msgspec.Struct, frozen=True):
    """Write a line to the log."""

    level: Level
    text: str


class Fail(msgspec.Struct, frozen=True):
    """Report this error to the user: nothing more can come. It is the last instruction."""

    error: EmlioError


ControlInstruction = Call | Say | Disconnect
DataInstruction = ConnectLane | SayCredit | CloseLane | LookAtLanes | ReadHere
Instruction = ControlInstruction | DataInstruction | HandOut | Answered | Remember | LookUpNames | Note | Fail
