"""What kind of link is wanted.

Covers: round trip, jitter, rate, loss, how much one direction may hold, TCP's buffers at its ends. Does not cover: making it
(emlio.benchmarks.link.choice).
"""

from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError

__all__ = ["LinkSpec"]

_FASTEST_BYTES_PER_S: Final = 1_250_000_000
"""10 Gbit/s, about what one forwarding process carries."""
_FASTEST_TIMES: Final = 4
_LEAST_HELD_BYTES: Final = 16 << 20
_LEAST_ROUTER_BYTES: Final = 1 << 20
"""Many connections that begin at once send this much before they hear of a slow line."""
_LONGEST_PACKET_BYTES: Final = 65_535 + 10
_LONGEST_RTT_NS: Final = 10_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """A link between storage and training, the same in both directions.

    Attributes:
        rtt_ns: what the link adds to a round trip, half of it in each direction. A clock offset that is measured over the link is
            biased by any difference between the two, so there is none.
        rate_bytes_per_s: how fast each direction's line is, in bytes of IP packets; None for as fast as this machine can.
        loss: the share of wire segments that never arrive. A packet handed over by the kernel stands for up to 45 of them,
            and each is lost or not on its own.
        seed: draws which segments are lost, and the jitter.
        queue_bytes: the most one direction holds, waiting for the line or on its way; packets beyond it are dropped and counted.
            None for `held_bytes`' own choice.
        jitter_ns: how much longer or shorter than half the round trip a packet takes at most. Packets keep their order.
        tuned: whether TCP may take 64 MB a connection at both ends; else what this machine's own setting is.
    """

    rtt_ns: int
    rate_bytes_per_s: int | None = None
    loss: float = 0.0
    seed: int = 0
    queue_bytes: int | None = None
    jitter_ns: int = 0
    tuned: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rtt_ns <= _LONGEST_RTT_NS:
            raise ConfigError(f"rtt_ns must be in [0, {_LONGEST_RTT_NS}], got {self.rtt_ns}")
        if self.rate_bytes_per_s is not None and self.rate_bytes_per_s <= 0:
            raise ConfigError(f"rate_bytes_per_s must be above 0, got {self.rate_bytes_per_s}")
        if not 0.0 <= self.loss < 1.0:
            raise ConfigError(f"loss must be in [0, 1), got {self.loss}")
        if self.queue_bytes is not None and self.queue_bytes < _LONGEST_PACKET_BYTES:
            raise ConfigError(
                f"queue_bytes must hold one packet of {_LONGEST_PACKET_BYTES} bytes, got {self.queue_bytes}"
            )

        if not 0 <= self.jitter_ns <= self.delay_ns:
            raise ConfigError(f"jitter_ns must be in [0, {self.delay_ns}], half the round trip, got {self.jitter_ns}")

    @property
    def delay_ns(self) -> int:
        """How long a packet is on its way in one direction."""
        return self.rtt_ns // 2

    @property
    def held_bytes(self) -> int:
        """The most one direction holds.

        With a rate: what is on its way, and one product of rate and round trip that waits for the line, as a router's buffer is
        commonly sized. Without one nothing waits for the line; the bound is four products at 10 Gbit/s and protects memory only.
        """
        if self.queue_bytes is not None:
            return self.queue_bytes
        if self.rate_bytes_per_s is None:
            return max(_FASTEST_TIMES * _FASTEST_BYTES_PER_S * self.rtt_ns // 1_000_000_000, _LEAST_HELD_BYTES)
        on_its_way = self.rate_bytes_per_s * self.delay_ns // 1_000_000_000
        return on_its_way + max(self.rate_bytes_per_s * self.rtt_ns // 1_000_000_000, _LEAST_ROUTER_BYTES)
