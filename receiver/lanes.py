"""How many connections a path needs.

One TCP connection carries at most a socket buffer per round trip. With stock buffers (4 MB) and 30 ms that is 1 Gbit/s, so a fast
and long path takes several; a short one takes a single one, which costs least.

Covers: the number from what was measured. Does not cover: sharing a link between ranks, which the daemon decides.
"""

from emlio.wire.limits import MAX_LANES

__all__ = ["lanes_for"]

_TARGET_BYTES_PER_S = 1_250_000_000
"""10 Gbit/s: what a storage node's link usually is. A slower link is filled by fewer, and more do not hurt it much."""

_USABLE = 0.85
"""The part of a socket buffer that is payload in flight, as measured at 30 ms."""

_RESERVE = 1.5
"""Connections recover from a loss one by one; half as many again keep the link full meanwhile."""

_SHORT_PATH_NS = 1_000_000
"""Below one millisecond a single connection reaches any link's rate, and the figure is mostly scheduling noise."""


def lanes_for(round_trip_ns: int, send_buffer_bytes: int, receive_buffer_bytes: int, most: int = MAX_LANES) -> int:
    """Connections that fill 10 Gbit/s over this round trip with these buffers; at most `most`, which a daemon may set."""
    if round_trip_ns < _SHORT_PATH_NS:
        return 1
    # Half of a receive buffer is the kernel's own bookkeeping.
    buffer = max(min(send_buffer_bytes, receive_buffer_bytes // 2) * _USABLE, 1.0)
    needed = _TARGET_BYTES_PER_S * round_trip_ns / 1e9 * _RESERVE / buffer
    return max(1, min(MAX_LANES, most, -int(-needed // 1)))
