"""The specification of a link.

Covers: round trip, jitter, rate, loss, the limit of held bytes, TCP's buffers at the ends. Does not
cover: making the link (emlio_bench.link.choice).
"""

from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError

__all__ = ["LinkSpec"]

_FASTEST_BYTES_PER_S: Final = 1_250_000_000
"""10 Gbit/s, about the throughput of one forwarding process."""
_FASTEST_TIMES: Final = 4
_LEAST_HELD_BYTES: Final = 16 << 20
_LEAST_ROUTER_BYTES: Final = 1 << 20
"""The smallest router buffer.

Many connections that start at once send this much before they notice a slow line.
"""
_LONGEST_PACKET_BYTES: Final = 65_535 + 10
_LONGEST_RTT_NS: Final = 10_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """A link between storage and training, the same in both directions.

    Attributes:
        rtt_ns: time that the link adds to a round trip, half of it in each direction. Both halves
            are equal, because a difference would bias a clock offset that is measured over the
            link.
        rate_bytes_per_s: rate of each direction, in bytes of IP packets; None for as fast as this
            machine can.
        loss: share of wire segments that never arrive. A packet from the kernel stands for up to 45
            segments, and each is drawn on its own.
        seed: seed of the losses and the jitter.
        queue_bytes: most bytes that one direction holds, waiting for the line or in transit;
            packets beyond it are dropped and counted. None for the default of `held_bytes`.
        jitter_ns: greatest deviation of a packet's delay from half the round trip. Packets keep
            their order.
        tuned: whether TCP may take 64 MB for each connection at both ends; otherwise the machine's
            own setting applies.
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
        """Delay of a packet in one direction."""
        return self.rtt_ns // 2

    @property
    def held_bytes(self) -> int:
        """The most bytes that one direction holds.

        With a rate: the bytes in transit, and one bandwidth-delay product that waits for the line,
        the usual size of a router's buffer. Without a rate nothing waits for the line: the limit is
        four products at 10 Gbit/s, and only protects memory.
        """
        if self.queue_bytes is not None:
            return self.queue_bytes
        if self.rate_bytes_per_s is None:
            return max(_FASTEST_TIMES * _FASTEST_BYTES_PER_S * self.rtt_ns // 1_000_000_000, _LEAST_HELD_BYTES)
        on_its_way = self.rate_bytes_per_s * self.delay_ns // 1_000_000_000
        return on_its_way + max(self.rate_bytes_per_s * self.rtt_ns // 1_000_000_000, _LEAST_ROUTER_BYTES)
