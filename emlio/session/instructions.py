"""Instructions from a session's state machine to the code that runs it.

Covers: the values that the machines of both sides return. Does not cover: carrying them out
(emlio.daemon.control.thread, emlio.receiver.engine.engine).
"""

import msgspec

from emlio.errors import EmlioError
from emlio.wire.control import ControlMessage, Open, PlanOffer, Question, ShardRow
from emlio.wire.questions import Subject, Told

__all__ = [
    "Agreed",
    "AnswerCame",
    "DaemonInstruction",
    "Ended",
    "Failed",
    "Judge",
    "Listed",
    "LookUp",
    "Matched",
    "RankInstruction",
    "Send",
    "StartStream",
    "StopStream",
    "StreamOpened",
]


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send this message to the peer."""

    message: ControlMessage


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon has listed all shards it holds."""

    rows: tuple[ShardRow, ...]
    missing: tuple[str, ...]


class Agreed(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides have the same plan; streams may be opened."""


class StreamOpened(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon is now sending this stream.

    Attributes:
        stream: the stream's number.
        lanes: the most lanes it uses.
        lane_bytes: bytes that may be in flight on each; 0 if the daemon did not say.
    """

    stream: int
    lanes: int
    lane_bytes: int = 0


class AnswerCame(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon has answered a question of this session, or a part of it."""

    session: int
    number: int
    about: Subject
    told: Told


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon has said for which of its records a predicate holds.

    `told` has a bit for each record of the listed shards, in their order, or a digest for each shard.
    """

    told: bytes


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The session has ended with this error."""

    error: EmlioError


RankInstruction = Send | Listed | Matched | Agreed | StreamOpened | AnswerCame | Failed


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """Compute the plan of this offer and answer with `agree`, `refuse`, `ask_catalog` or `ask_content`.

    `rows` is the whole catalog if the rank has just sent it, else None: the catalog may be known
    already. `content` is likewise a set of records that the offer's sampling names.
    """

    offer: PlanOffer
    rows: tuple[ShardRow, ...] | None
    content: bytes | None = None


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """Find the answer to this question. Once it is sent, call `answered`; or call `refuse`."""

    question: Question


class StartStream(msgspec.Struct, frozen=True, kw_only=True):
    """Start pushing this stream and call `opened`. Stop the running stream first, if any."""

    order: Open


class StopStream(msgspec.Struct, frozen=True, kw_only=True):
    """Stop the session's stream and free its buffers."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The session is over; drop it.

    `failure` is the code of the refusal that ended it, "lost" if the rank fell silent, and empty if
    nothing failed.
    """

    reason: str
    failure: str = ""


DaemonInstruction = Send | Judge | LookUp | StartStream | StopStream | Ended
