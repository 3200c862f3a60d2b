"""The pass that a lane shows when it connects.

Covers: deriving it from the session's secret. Does not cover: checking it
(emlio.daemon.access.lane_gate).
"""

from dataclasses import dataclass, field

from emlio.wire.seal import lane_group, lane_name, lane_token

__all__ = ["LanePass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePass:
    """The user name, token and name that a lane shows when it connects.

    Attributes:
        user: names the lane's session and the lane's number in it.
        token: admits the lane, once.
        name: the lane's ROUTING_ID.
    """

    user: bytes
    token: bytes = field(repr=False)
    name: bytes

    @classmethod
    def of(cls, secret: bytes, number: int) -> "LanePass":
        """Return the pass of the lane with this number, in the session with this secret."""
        user = f"{lane_group(secret)}.{number}".encode("ascii")
        return cls(user=user, token=lane_token(secret, number), name=lane_name(secret, number))
