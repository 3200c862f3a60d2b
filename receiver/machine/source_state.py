"""The states of a daemon as the rank sees it, and every move between them.

Covers: the table, and the function that reads it. Does not cover: the effects of a move
(emlio.receiver.machine.daemon_pool), the session itself (emlio.session.states).

    CALLED ─agree→ HERE ─block→ BLOCKED ─unblock→ HERE
    any of these ─part→ PARTING ─lose→ LOST; any ─lose→ LOST ─call→ CALLED AGAIN ─agree→ HERE
"""

from collections.abc import Mapping
from enum import Enum

from emlio.errors import LocalProtocolError

__all__ = ["SOURCE_MOVES", "SourceState", "moved"]


class SourceState(Enum):
    """The state of a daemon, as the rank sees it.

    Attributes:
        CALLED: being connected for the first time; it has not agreed to the plan.
        HERE: it agreed, and a stream can be ordered from it.
        BLOCKED: it agreed, but no lane to it could be connected for too long.
        PARTING: it said goodbye, and something that it sent is still in flight.
        LOST: there is no connection to it. It is connected again when its delay is over.
        CALLED_AGAIN: being connected again; it has not agreed since it was lost.
    """

    CALLED = "called"
    HERE = "here"
    BLOCKED = "blocked"
    PARTING = "parting"
    LOST = "lost"
    CALLED_AGAIN = "called again"


_TALKING = (SourceState.CALLED, SourceState.HERE, SourceState.BLOCKED, SourceState.CALLED_AGAIN)

SOURCE_MOVES: Mapping[tuple[SourceState, str], SourceState] = {
    (SourceState.CALLED, "agree"): SourceState.HERE,
    (SourceState.CALLED_AGAIN, "agree"): SourceState.HERE,
    (SourceState.CALLED_AGAIN, "agree, blocked"): SourceState.BLOCKED,
    (SourceState.HERE, "block"): SourceState.BLOCKED,
    (SourceState.BLOCKED, "unblock"): SourceState.HERE,
    (SourceState.CALLED, "call"): SourceState.CALLED,
    (SourceState.CALLED_AGAIN, "call"): SourceState.CALLED_AGAIN,
    (SourceState.LOST, "call"): SourceState.CALLED_AGAIN,
    (SourceState.LOST, "lose"): SourceState.LOST,
    (SourceState.PARTING, "lose"): SourceState.LOST,
    **{(state, "part"): SourceState.PARTING for state in _TALKING},
    **{(state, "lose"): SourceState.LOST for state in _TALKING},
}


def moved(state: SourceState, move: str) -> SourceState:
    """Return the state after a move.

    Raises:
        LocalProtocolError: there is no such move in this state.
    """
    after = SOURCE_MOVES.get((state, move))
    if after is None:
        allowed = sorted(name for known, name in SOURCE_MOVES if known is state)
        raise LocalProtocolError(
            f"{move!r} is not allowed for a daemon in state {state.value}; allowed: {', '.join(allowed)}"
        )
    return after
