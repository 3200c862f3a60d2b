"""The instructions of the rank's machine.

Covers: the values. Does not cover: carrying them out (emlio.receiver.engine.engine,
emlio.receiver.connection.lane_plane).
"""

from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Call:
    """Connect to a daemon's control port, in place of any existing connection to it.

    Attributes:
        source: the daemon.
        way: the address; None if none is known: then no connection is made.
    """

    source: int
    way: Peer | None


@dataclass(frozen=True, slots=True)
class Say:
    """Send a control message; before there is a connection it is queued."""

    source: int
    message: ControlMessage


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Disconnect, after giving the last messages this long to leave."""

    source: int
    linger_ms: int


@dataclass(frozen=True, slots=True)
class ConnectLane:
    """Connect a lane."""

    source: int
    lane: int
    endpoint: str
    shown: LanePass


@dataclass(frozen=True, slots=True)
class SayCredit:
    """Tell a daemon on this lane how much of it was read, and what its stream may send.

    The answer may be `LaneFull`.
    """

    source: int
    lane: int
    credit: Credit


@dataclass(frozen=True, slots=True)
class CloseLane:
    """Disconnect a lane; unread messages are dropped."""

    source: int
    lane: int


@dataclass(frozen=True, slots=True)
class LookAtLanes:
    """Report the changes of a daemon's lanes since the last look."""

    source: int


@dataclass(frozen=True, slots=True, eq=False)
class ReadHere:
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


@dataclass(frozen=True, slots=True, eq=False)
class HandOut:
    """Hand out complete batches, in this order."""

    generation: int
    batches: list[WholeBatch]


@dataclass(frozen=True, slots=True)
class Answered:
    """Pass a daemon's answer to the thread that asked."""

    source: int
    came: AnswerCame


@dataclass(frozen=True, slots=True)
class Remember:
    """Remember this about the path to an address."""

    way: Peer
    path: KnownPath


@dataclass(frozen=True, slots=True)
class LookUpNames:
    """Look up host names: a daemon is not, or may not be, where it was."""


@dataclass(frozen=True, slots=True)
class Note:
    """Write a line to the log."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Report this error to the user: nothing more can come. It is the last instruction."""

    error: EmlioError


ControlInstruction = Call | Say | Disconnect
DataInstruction = ConnectLane | SayCredit | CloseLane | LookAtLanes | ReadHere
Instruction = ControlInstruction | DataInstruction | HandOut | Answered | Remember | LookUpNames | Note | Fail
