"""The link that is wanted."""

from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError

__all__ = ["LinkSpec"]

_FASTEST_BYTES_PER_S: Final = 1_250_000_000
"""A line without a rate is taken to carry at most this."""
_FASTEST_TIMES: Final = 4
_LEAST_HELD_BYTES: Final = 16 << 20
_LEAST_ROUTER_BYTES: Final = 1 << 20
_LONGEST_PACKET_BYTES: Final = 65_535 + 10
_LONGEST_RTT_NS: Final = 10_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """Round trip, rate and buffers of a link.

    Attributes:
        rtt_ns: round trip; each direction has half of it.
        rate_bytes_per_s: bytes on the wire in a second, in each direction; None for no limit.
        queue_bytes: bytes a direction holds at most; None for what a good router would hold.
        tuned: whether TCP may have 64 MB for a connection at both ends.
    """

    rtt_ns: int
    rate_bytes_per_s: int | None = None
    queue_bytes: int | None = None
    tuned: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rtt_ns <= _LONGEST_RTT_NS:
            raise ConfigError(f"rtt_ns must be in [0, {_LONGEST_RTT_NS}], got {self.rtt_ns}")
        if self.rate_bytes_per_s is not None and self.rate_bytes_per_s <= 0:
            raise ConfigError(f"rate_bytes_per_s must be above 0, got {self.rate_bytes_per_s}")
        if self.queue_bytes is not None and self.queue_bytes < _LONGEST_PACKET_BYTES:
            raise ConfigError(
                f"queue_bytes must hold one packet of {_LONGEST_PACKET_BYTES} bytes, got {self.queue_bytes}"
            )

    @property
    def delay_ns(self) -> int:
        """Delay of one direction."""
        return self.rtt_ns // 2

    @property
    def held_bytes(self) -> int:
        """Bytes that one direction holds at most: on their way, and in a router's buffer of a round trip."""
        if self.queue_bytes is not None:
            return self.queue_bytes
        if self.rate_bytes_per_s is None:
            return max(_FASTEST_TIMES * _FASTEST_BYTES_PER_S * self.rtt_ns // 1_000_000_000, _LEAST_HELD_BYTES)
        on_its_way = self.rate_bytes_per_s * self.delay_ns // 1_000_000_000
        return on_its_way + max(self.rate_bytes_per_s * self.rtt_ns // 1_000_000_000, _LEAST_ROUTER_BYTES)
