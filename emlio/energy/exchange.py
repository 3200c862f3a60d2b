"""A question to another node's clock and its answer: four time stamps.

Covers: what one exchange says of the offset, and how sure that is. Does not cover: sending it; what many say together
(emlio.energy.clocks).

The only truth in an exchange is an interval: the answer was made after we asked and before we heard it. Its middle is the
offset if both ways took equally long; if one way took all the time the offset is at an end, half a round trip away.
"""

from dataclasses import dataclass

from emlio.errors import ConfigError

__all__ = ["MOST_DRIFT_PPB", "Exchange", "Offset"]

MOST_DRIFT_PPB = 500_000
"""Two clocks of Linux do not drift apart faster: crystals stay below 100 ppm, and NTP slews by at most 500 ppm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A question and its answer.

    Attributes:
        sent_ns: the question left, by our clock.
        heard_ns: it was heard, by the other's.
        answered_ns: the answer left, by the other's.
        came_ns: it came, by ours.
    """

    sent_ns: int
    heard_ns: int
    answered_ns: int
    came_ns: int

    def __post_init__(self) -> None:
        if self.came_ns < self.sent_ns or self.answered_ns < self.heard_ns or self.round_trip_ns < 0:
            raise ConfigError(
                "an answer must leave after its question was heard, and come after that by at least as much, got "
                f"sent {self.sent_ns}, heard {self.heard_ns}, answered {self.answered_ns}, came {self.came_ns} ns"
            )

    @property
    def at_ns(self) -> int:
        """Its middle, by our clock."""
        return (self.sent_ns + self.came_ns) // 2

    @property
    def round_trip_ns(self) -> int:
        """On the way, both ways together."""
        return (self.came_ns - self.sent_ns) - (self.answered_ns - self.heard_ns)

    @property
    def offset_ns(self) -> int:
        """The other's clock less ours, if both ways took equally long."""
        return ((self.heard_ns - self.sent_ns) + (self.answered_ns - self.came_ns)) // 2

    @property
    def error_ns(self) -> int:
        """The true offset is not further away: half the round trip, drift during it, and what halving rounds."""
        return self.round_trip_ns * (1_000_000_000 + MOST_DRIFT_PPB) // 2_000_000_000 + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """What one exchange says, as it is stored.

    Attributes:
        node: the other's name.
        at_ns: when, by our clock.
        offset_ns: the other's clock less ours.
        error_ns: the true offset is not further away.
        round_trip_ns: on the way, both ways together.
    """

    node: str
    at_ns: int
    offset_ns: int
    error_ns: int
    round_trip_ns: int

    def __post_init__(self) -> None:
        if self.round_trip_ns < 0 or self.error_ns < 0:
            raise ConfigError(
                f"a round trip and an error must not be below 0, got {self.round_trip_ns} and {self.error_ns} ns"
            )

    @classmethod
    def of(cls, node: str, exchange: Exchange) -> "Offset":
        """What an exchange with `node` says."""
        return cls(
            node=node,
            at_ns=exchange.at_ns,
            offset_ns=exchange.offset_ns,
            error_ns=exchange.error_ns,
            round_trip_ns=exchange.round_trip_ns,
        )
