"""Instructions from a session's state machine to the code that runs it.

Covers: the values that the machines of both sides return. Does not cover: carrying them out
(emlio.daemon.control.thread, emlio.receiver.engine.engine).
"""

from dataclasses import dataclass

from emlio.errors import EmlioError
from emlio.wire.contents import MatchRequest
from emlio.wire.control import (
    ControlMessage,
    EnergyReply,
    EnergyRequest,
    Open,
    PlanOffer,
    RecordsReply,
    RecordsRequest,
    ShardRow,
)

__all__ = [
    "Agreed",
    "DaemonInstruction",
    "Ended",
    "EnergyCame",
    "Failed",
    "Judge",
    "Listed",
    "LookUpEnergy",
    "LookUpMatches",
    "LookUpRecords",
    "LookUpSizes",
    "Matched",
    "RankInstruction",
    "RecordsCame",
    "Send",
    "SizesCame",
    "StartStream",
    "StopStream",
    "StreamOpened",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send this message to the peer."""

    message: ControlMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The daemon has listed all shards it holds."""

    rows: tuple[ShardRow, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """Both sides have the same plan; streams may be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpened:
    """The daemon is now sending this stream.

    Attributes:
        stream: the stream's number.
        lanes: the most lanes it uses.
        lane_bytes: bytes that may be in flight on each; 0 if the daemon did not say.
    """

    stream: int
    lanes: int
    lane_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SizesCame:
    """The daemon has answered a request for sizes.

    Attributes:
        shard: the name of the shard's file.
        first: the number of the first record in the answer.
        offset: where that record's frame begins in the file.
        sizes: the frames' sizes, packed as little-endian uint32. Maybe fewer than asked for, see
            `SizesReply`; empty if the daemon has no such record.
    """

    shard: str
    first: int
    offset: int
    sizes: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The daemon has said for which of its records a predicate holds.

    `told` has a bit for each record of the listed shards, in their order, or a digest for each shard.
    """

    told: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsCame:
    """The daemon has answered a request for single records, or a part of it."""

    reply: RecordsReply


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyCame:
    """The daemon has answered an energy request, or a part of it."""

    reply: EnergyReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The session has ended with this error."""

    error: EmlioError


RankInstruction = Send | Listed | Matched | Agreed | StreamOpened | SizesCame | RecordsCame | EnergyCame | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Compute the plan of this offer and answer with `agree`, `refuse`, `ask_catalog` or `ask_content`.

    `rows` is the whole catalog if the rank has just sent it, else None: the catalog may be known
    already. `content` is likewise a set of records that the offer's sampling names.
    """

    offer: PlanOffer
    rows: tuple[ShardRow, ...] | None
    content: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpSizes:
    """Find these records in the shard's index and send a `SizesReply`.

    The reply is empty if the records are not here.
    """

    shard: str
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpMatches:
    """Find the records for which the predicate holds, and call `tell_matches` with a bit for each, or `refuse`."""

    question: MatchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpRecords:
    """Read these records and call `tell_records`."""

    question: RecordsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpEnergy:
    """Find what this node's recorder has for the requested time, and call `tell_energy`."""

    question: EnergyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStream:
    """Start pushing this stream and call `opened`. Stop the running stream first, if any."""

    order: Open


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStream:
    """Stop the session's stream and free its buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The session is over; drop it.

    `failure` is the code of the refusal that ended it, "lost" if the rank fell silent, and empty if
    nothing failed.
    """

    reason: str
    failure: str = ""


DaemonInstruction = (
    Send | Judge | LookUpSizes | LookUpMatches | LookUpRecords | LookUpEnergy | StartStream | StopStream | Ended
)
