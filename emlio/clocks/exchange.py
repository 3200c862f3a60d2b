"""One clock exchange: a request to another node and its answer, with four time stamps.

Covers: the offset that one exchange gives, and its error. Does not cover: sending it; combining
many (emlio.clocks.fit).

An exchange only proves an interval: the answer was made after the request was sent and before the
answer arrived. The middle of the interval is the offset if both directions took equally long. If
one direction took all the time, the offset is at an end of the interval, half a round trip away.
"""

from dataclasses import dataclass

from emlio.errors import ConfigError

__all__ = ["MOST_DRIFT_PPB", "Exchange"]

MOST_DRIFT_PPB = 500_000
"""The largest drift of two Linux clocks: crystals stay below 100 ppm, and NTP slews by at most 500
ppm.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its answer.

    Attributes:
        sent_ns: when the request was sent, by our clock.
        heard_ns: when it arrived, by the other clock.
        answered_ns: when the answer was sent, by the other clock.
        came_ns: when it arrived, by our clock.
    """

    sent_ns: int
    heard_ns: int
    answered_ns: int
    came_ns: int

    def __post_init__(self) -> None:
        if self.came_ns < self.sent_ns or self.answered_ns < self.heard_ns or self.round_trip_ns < 0:
            raise ConfigError(
                "an exchange must take at least as long as the other side's part of it, got "
                f"sent {self.sent_ns}, heard {self.heard_ns}, answered {self.answered_ns}, came {self.came_ns} ns"
            )

    @property
    def at_ns(self) -> int:
        """The middle of the exchange, by our clock."""
        return (self.sent_ns + self.came_ns) // 2

    @property
    def round_trip_ns(self) -> int:
        """The network time of both directions together."""
        return (self.came_ns - self.sent_ns) - (self.answered_ns - self.heard_ns)

    @property
    def offset_ns(self) -> int:
        """The other clock minus ours, if both directions took equally long."""
        return ((self.heard_ns - self.sent_ns) + (self.answered_ns - self.came_ns)) // 2

    @property
    def error_ns(self) -> int:
        """The largest possible error of `offset_ns`.

        It includes half the round trip, drift during it, and rounding.
        """
        return self.round_trip_ns * (1_000_000_000 + MOST_DRIFT_PPB) // 2_000_000_000 + 2
