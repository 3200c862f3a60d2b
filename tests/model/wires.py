"""The wires between the rank and a daemon: what the rank's instructions do to them, and words for what they carry.

Covers: the changes, the messages as a daemon of the search knows them. Does not cover: the daemons (daemons), the steps (steps).
"""

from typing import Any

from daemons import Lane, LaneState, Side, with_lane
from world import DAEMONS, HEARTBEAT_NS, World

from emlio.receiver.machine.instructions import Call, CloseLane, ConnectLane, Disconnect, Say, SayCredit
from emlio.wire.control import (
    ControlMessage,
    Goodbye,
    Hello,
    Open,
    Ping,
    PlanOffer,
    ShardsRequest,
    Stop,
    Welcome,
)

__all__ = ["changed", "may_hear", "named", "welcome", "words_of"]


def changed(side: Side, instruction: Call | Say | Disconnect | ConnectLane | CloseLane | SayCredit) -> Side:
    """What lies between a daemon and the rank once an instruction of the rank was carried out."""
    match instruction:
        case Call():
            return side._replace(linked=True, known=False, up=(), down=(), ordered=0, excused=False)
        case Disconnect():
            return side._replace(linked=False, known=False, up=(), down=(), feed=None)
        case Say(message=message):
            said, ordered = _short(message), side.ordered
            if said is not None and said[0] == "open":
                ordered = said[1]
            elif said is not None and said[0] == "offer" and said[1] is not None:
                ordered = said[1][0]
            up = (*side.up, said) if said is not None and side.linked else side.up
            return side._replace(up=up, ordered=ordered)
        case ConnectLane(lane=number):
            return side._replace(lanes=(*side.lanes, Lane(number)))
        case CloseLane(lane=number):
            return side._replace(lanes=tuple(lane for lane in side.lanes if lane.number != number))
        case SayCredit(lane=number, credit=credit):
            (lane,) = (lane for lane in side.lanes if lane.number == number)
            carries = lane.state in (LaneState.CONNECTING, LaneState.UP)
            return with_lane(side, lane._replace(credit=credit)) if carries else side


def may_hear(side: Side, lane: Lane) -> bool:
    """Whether a credit arrives that does not overtake its order."""
    if lane.state is not LaneState.UP or lane.credit is None:
        return False
    return lane.credit.stream != side.ordered or not any(said[0] in ("open", "offer") for said in side.up)


def welcome(world: World, daemon: int, session: int) -> Welcome:
    """A daemon's answer to a hello."""
    rows = world.rows(daemon)
    return Welcome(
        session=session,
        daemon=DAEMONS[daemon],
        software="0.1.0",
        shards=len(rows),
        records=sum(row.records for row in rows),
        missing=[],
        missing_count=0,
        heartbeat_timeout_ns=HEARTBEAT_NS,
        send_buffer_bytes=4 << 20,
        max_lanes=4,
        rows=rows,
        process=DAEMONS[daemon],
    )


def _short(message: ControlMessage) -> tuple[Any, ...] | None:
    """What a daemon makes of a message; None where nothing follows from it here."""
    match message:
        case Hello():
            return ("hello",)
        case PlanOffer(first=first):
            return ("offer", (first.stream, first.slot, first.owned, first.credit) if isinstance(first, Open) else None)
        case Open():
            return ("open", message.stream, message.slot, message.owned, message.credit)
        case Stop():
            return ("stop",)
        case Ping() | Goodbye() | ShardsRequest():
            return None
        case _:
            raise AssertionError(f"a rank must not say {message}")


def words_of(said: tuple[Any, ...]) -> str:
    """A control message in words."""
    match said:
        case ("open", stream, slot, *_):
            return f"the order of stream {stream} from place {slot}"
        case ("offer", first) if first is not None:
            return f"the offer, and the order of stream {first[0]} from place {first[1]}"
        case ("opened", stream):
            return f"that stream {stream} is open"
        case _:
            return f"'{said[0]}'"


def named(lane: Lane) -> str:
    """A lane in words: its number tells nothing."""
    return f"the lane with {[list(message.places) for message in lane.queue]}"
