"""The states of a session on both sides, and every allowed move.

Covers: the two tables and the function that reads them. Does not cover: the effects of a move
(emlio.session.rank, emlio.session.daemon).

    rank:    NEW ─hello→ GREETING ─welcome→ LISTING ─shards→ LISTED ─offer→ OFFERING ─agree→ READY
             READY ─open→ OPENING ─opened→ STREAMING ─open→ OPENING; OPENING, STREAMING ─stop→ READY
    daemon:  GREETED ─offer→ JUDGING ─need catalog→ COLLECTING ─last part→ JUDGING ─agree→ AGREED ─open→ STREAMING ─stop→ AGREED
    both:    any ─goodbye, refusal, silence→ OVER

An offer may carry the first order. Agreeing then opens that stream, and the rank goes from OFFERING
directly to OPENING. A set of records that the offer names is collected like a catalog ("need
content", its last part). From LISTING on, in every state but OVER, a rank may ask questions; this
does not change the state. Which records a predicate holds for it may ask in LISTED only.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from emlio.errors import ProtocolError

__all__ = ["DAEMON_MOVES", "RANK_MOVES", "DaemonState", "RankState", "next_state"]


class RankState(Enum):
    """The state of the rank's session with one daemon."""

    NEW = "new"
    GREETING = "greeting"
    LISTING = "listing"
    LISTED = "listed"
    OFFERING = "offering"
    READY = "ready"
    OPENING = "opening"
    STREAMING = "streaming"
    OVER = "over"


class DaemonState(Enum):
    """The state of the daemon's session with one training process."""

    GREETED = "greeted"
    JUDGING = "judging"
    COLLECTING = "collecting"
    AGREED = "agreed"
    STREAMING = "streaming"
    OVER = "over"


_GREETED = (
    RankState.LISTING,
    RankState.LISTED,
    RankState.OFFERING,
    RankState.READY,
    RankState.OPENING,
    RankState.STREAMING,
)

RANK_MOVES: Mapping[tuple[RankState, str], RankState] = {
    (RankState.NEW, "greet"): RankState.GREETING,
    (RankState.GREETING, "welcome"): RankState.LISTING,
    (RankState.LISTING, "shardsreply"): RankState.LISTING,
    (RankState.LISTING, "listed"): RankState.LISTED,
    (RankState.LISTED, "askmatches"): RankState.LISTED,
    (RankState.LISTED, "matches"): RankState.LISTED,
    (RankState.LISTED, "offer"): RankState.OFFERING,
    (RankState.OFFERING, "planreply"): RankState.OFFERING,
    (RankState.OFFERING, "agreed"): RankState.READY,
    (RankState.OFFERING, "begins"): RankState.OPENING,
    (RankState.READY, "open"): RankState.OPENING,
    (RankState.STREAMING, "open"): RankState.OPENING,
    (RankState.OPENING, "open"): RankState.OPENING,
    (RankState.OPENING, "opened"): RankState.OPENING,
    (RankState.OPENING, "current"): RankState.STREAMING,
    (RankState.OPENING, "stop"): RankState.READY,
    (RankState.STREAMING, "stop"): RankState.READY,
    **{(state, "ask"): state for state in _GREETED},
}
"""`opened` does not end OPENING: it may answer an order that was since replaced. `current` does."""

DAEMON_MOVES: Mapping[tuple[DaemonState, str], DaemonState] = {
    (DaemonState.GREETED, "shardsrequest"): DaemonState.GREETED,
    (DaemonState.GREETED, "askmatches"): DaemonState.GREETED,
    (DaemonState.GREETED, "planoffer"): DaemonState.JUDGING,
    (DaemonState.AGREED, "planoffer"): DaemonState.JUDGING,
    (DaemonState.JUDGING, "needcatalog"): DaemonState.COLLECTING,
    (DaemonState.COLLECTING, "catalogpart"): DaemonState.COLLECTING,
    (DaemonState.JUDGING, "needcontent"): DaemonState.COLLECTING,
    (DaemonState.COLLECTING, "contentpart"): DaemonState.COLLECTING,
    (DaemonState.COLLECTING, "collected"): DaemonState.JUDGING,
    (DaemonState.JUDGING, "agree"): DaemonState.AGREED,
    (DaemonState.AGREED, "open"): DaemonState.STREAMING,
    (DaemonState.STREAMING, "open"): DaemonState.STREAMING,
    (DaemonState.STREAMING, "stop"): DaemonState.AGREED,
}

_State = TypeVar("_State", RankState, DaemonState)


def next_state(
    moves: Mapping[tuple[_State, str], _State], state: _State, move: str, blame: type[ProtocolError]
) -> _State:
    """Return the state after `move`; an illegal pair raises `blame` and names both."""
    after = moves.get((state, move))
    if after is None:
        allowed = sorted(name for known, name in moves if known is state) or ["nothing"]
        raise blame(f"{move!r} is not allowed in state {state.value!r}; allowed: {', '.join(allowed)}")
    return after
