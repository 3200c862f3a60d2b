"""What a state machine asks its shell to do.

Covers: the values both sides' machines return. Does not cover: doing it (emlio.daemon.control, emlio.receiver.engine).
"""

from dataclasses import dataclass, field

from emlio.errors import EmlioError
from emlio.wire.control import ControlMessage, EnergyReply, EnergyRequest, Open, PlanOffer, ShardRow

__all__ = [
    "Agreed",
    "DaemonInstruction",
    "Ended",
    "EnergyCame",
    "Failed",
    "FreeLanes",
    "Judge",
    "LanesLost",
    "LanesReserved",
    "Listed",
    "LookUpEnergy",
    "LookUpSizes",
    "RankInstruction",
    "ReserveLanes",
    "Send",
    "SizesCame",
    "StartStream",
    "StopStream",
    "StreamOpened",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send this to the peer."""

    message: ControlMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The daemon has said all it holds."""

    rows: tuple[ShardRow, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """Both sides work by the same plan; streams may be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpened:
    """Connect to these ports.

    Attributes:
        stream: which opening it is.
        ports: the lanes'.
        secret: what admission and keys follow from; empty where lanes ask for the rank's own key.
        reserved: whether they are the lanes that were connected before; where not, and there are such, those are closed.
    """

    stream: int
    ports: tuple[int, ...]
    secret: bytes = field(default=b"", repr=False)
    reserved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesReserved:
    """Connect to these ports, and read nothing before `StreamOpened` says that they are the stream's.

    Attributes:
        ports: the lanes'.
        secret: as the stream's would be.
    """

    ports: tuple[int, ...]
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesLost:
    """No stream will be opened over the lanes that were reserved: close them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizesCame:
    """The daemon has answered a question for sizes; empty where it has no such record.

    Attributes:
        shard: the name of the shard's file.
        first: the number of the first record in it.
        offset: where that record's frame begins in the file.
        sizes: the frames' sizes, packed as little-endian uint32; perhaps fewer than asked for, see `SizesReply`.
    """

    shard: str
    first: int
    offset: int
    sizes: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyCame:
    """The daemon has answered the question for what its node used, or for a part of it."""

    reply: EnergyReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The session is over because of this."""

    error: EmlioError


RankInstruction = Send | Listed | Agreed | StreamOpened | LanesReserved | LanesLost | SizesCame | EnergyCame | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Compute the plan of this offer and answer `agree`, `refuse` or `ask_catalog`.

    `rows` is the whole catalog when the rank has sent it, else None: it may be known already.
    """

    offer: PlanOffer
    rows: tuple[ShardRow, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpSizes:
    """Find these records in the shard's index and send a `SizesReply`, an empty one where they are not here."""

    shard: str
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpEnergy:
    """Find what this node's recorder has of the stretch asked for, and `tell_energy`."""

    question: EnergyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStream:
    """Bind the lanes, or take those that are reserved, answer `opened`, and push; a stream that runs is stopped first."""

    order: Open


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStream:
    """Free the lanes and buffers of the session's stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveLanes:
    """Bind so many lanes, as far as there are any for this rank, and say `reserved`."""

    lanes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeLanes:
    """Free the lanes that were reserved, or are being bound: no stream takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The session is over; forget it."""

    reason: str


DaemonInstruction = (
    Send | Judge | LookUpSizes | LookUpEnergy | ReserveLanes | FreeLanes | StartStream | StopStream | Ended
)
