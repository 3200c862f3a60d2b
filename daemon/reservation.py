"""The lanes of one stream before they are the stream's: how many, and what protects them.

Covers: the value. Does not cover: binding them (emlio.daemon.sender), when they are given up (emlio.session.reservation).
"""

from dataclasses import dataclass

from emlio.daemon.lane_guard import LaneGuard

__all__ = ["Reservation"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reservation:
    """Each is for one stream, since its secret is: bound when that is ordered, or before.

    Attributes:
        session: the session that asks for them.
        lanes: how many.
        guard: of them.
    """

    session: int
    lanes: int
    guard: LaneGuard
