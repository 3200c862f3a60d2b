"""The events of the rank's machine.

Daemons are identified by the numbers of their streams, lanes by their numbers in the session.

Covers: the events. Does not cover: where they come from (emlio.receiver.connection.lane_plane).
"""

import msgspec

from emlio.errors import EmlioError, RemoteProtocolError, TransportError
from emlio.receiver.addresses.address import Peer, Target
from emlio.receiver.addresses.connection_events import LaneEvent, LinkEvent, Refusal
from emlio.receiver.machine.message import Message
from emlio.receiver.tuning.tuning import Tuning

__all__ = [
    "AddressRefused",
    "BatchesTaken",
    "Begun",
    "CallFailed",
    "Connected",
    "ControlEvent",
    "DataEvent",
    "Event",
    "FrameBroken",
    "FrameCame",
    "LaneChanged",
    "LaneFull",
    "LinkEnded",
    "MessageRead",
    "PlaceChanged",
    "ReadingFailed",
    "RefusalExplained",
    "ReportsWanted",
    "Said",
    "Sought",
    "TargetsChanged",
    "TimePassed",
    "Tuned",
]


class Begun(msgspec.Struct, frozen=True):
    """Connect to the daemons."""


class TargetsChanged(msgspec.Struct, frozen=True):
    """From now on these are the loader's daemons."""

    targets: tuple[Target, ...]


class Sought(msgspec.Struct, frozen=True):
    """The user wants the batches from this position on.

    Attributes:
        epoch: the first epoch.
        origin: samples of it, over all ranks, that are no longer wanted.
        generation: the generation that these batches are handed out with.
    """

    epoch: int
    origin: int
    generation: int


class BatchesTaken(msgspec.Struct, frozen=True):
    """The user has taken so many batches of this generation, which took so much of the window."""

    generation: int
    batches: int
    held_bytes: int


class TimePassed(msgspec.Struct, frozen=True):
    """The end of a turn: every event of it was reported.

    Attributes:
        hungry: the user waits for a batch.
        quiet: nothing came in this turn.
    """

    hungry: bool
    quiet: bool


class Tuned(msgspec.Struct, frozen=True):
    """From now on the loader works so."""

    tuning: Tuning


class ReportsWanted(msgspec.Struct, frozen=True):
    """Ask the daemons for reports on their streams.

    Attributes:
        waits: the user waits for a batch; the times for which streams wait count then.
    """

    waits: bool = True


class PlaceChanged(msgspec.Struct, frozen=True):
    """The user begins a pass, or waits for a limit to be lifted: tell the daemons."""


class Connected(msgspec.Struct, frozen=True):
    """TCP has connected a control connection; with the handshake's round trip, if known."""

    source: int
    round_trip_ns: int | None


class AddressRefused(msgspec.Struct, frozen=True):
    """The address in use, or the network, refused a control connection.

    The transport tries again by itself.
    """

    source: int


class RefusalExplained(msgspec.Struct, frozen=True):
    """The reason why this address refuses control connections.

    It may come after another address was tried.
    """

    source: int
    way: Peer
    refusal: Refusal


class Said(msgspec.Struct, frozen=True):
    """A daemon's next control message."""

    source: int
    data: bytes | memoryview


class CallFailed(msgspec.Struct, frozen=True):
    """A control connection could not be begun, for a reason that may pass."""

    source: int
    error: TransportError


class LinkEnded(msgspec.Struct, frozen=True):
    """A control connection ended; everything received before was reported before."""

    source: int
    event: LinkEvent


class FrameCame(msgspec.Struct, frozen=True):
    """The next frame of a lane."""

    source: int
    lane: int
    frame: memoryview


class FrameBroken(msgspec.Struct, frozen=True):
    """The next message of a lane is not a valid message of a daemon."""

    source: int
    lane: int
    error: RemoteProtocolError


class LaneChanged(msgspec.Struct, frozen=True):
    """The connection of a lane has changed."""

    source: int
    lane: int
    event: LaneEvent


class LaneFull(msgspec.Struct, frozen=True):
    """A lane's send queue had no room for the credit."""

    source: int
    lane: int


class MessageRead(msgspec.Struct, frozen=True):
    """The next message of the stream that is read from this host's disks."""

    source: int
    message: Message


class ReadingFailed(msgspec.Struct, frozen=True):
    """The stream from this host's disks cannot go on."""

    error: EmlioError


ControlEvent = CallFailed | Connected | AddressRefused | RefusalExplained | Said | LinkEnded
DataEvent = FrameCame | FrameBroken | LaneChanged | LaneFull | MessageRead | ReadingFailed
Event = (
    Begun
    | TargetsChanged
    | Sought
    | BatchesTaken
    | ReportsWanted
    | PlaceChanged
    | TimePassed
    | Tuned
    | ControlEvent
    | DataEvent
)
