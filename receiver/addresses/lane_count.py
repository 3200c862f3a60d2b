"""The number of connections that a path needs.

One TCP connection carries at most a socket buffer per round trip. With stock buffers (4 MB) and 30
ms that is 1 Gbit/s, so a fast and long path takes several. A short path takes one, which is
cheapest.

Covers: the number from measurements, or from the little that is known before a session; the
division among several daemons. Does not cover: sharing a daemon's link between ranks, which the
daemon decides.
"""

from emlio.wire.limits import MAX_LANES

__all__ = ["lanes_each", "lanes_for", "lanes_of_rank", "lanes_per_ms"]

_TARGET_BYTES_PER_S = 1_250_000_000
"""10 Gbit/s: the usual link of a storage node. A slower link is filled by fewer lanes, which leaves
some to spare while connections recover from losses one by one. More lanes than needed would cost
both ends processor time and memory."""

_USABLE = 0.85
"""The share of a socket buffer that is payload in flight, as measured at 30 ms."""

_SHORT_PATH_NS = 1_000_000
"""Below one millisecond a single connection reaches any link's rate, and the measured round trip is
mostly scheduling noise."""


def lanes_for(round_trip_ns: int, send_buffer_bytes: int, receive_buffer_bytes: int, most: int = MAX_LANES) -> int:
    """Return the connections that fill 10 Gbit/s over this round trip with these buffers.

    The result is at most `most`, a limit that a daemon may set.
    """
    if round_trip_ns < _SHORT_PATH_NS:
        return 1
    needed = lanes_per_ms(send_buffer_bytes, receive_buffer_bytes) * round_trip_ns / 1e6
    return max(1, min(MAX_LANES, most, -int(-needed // 1)))


def lanes_per_ms(send_buffer_bytes: int, receive_buffer_bytes: int) -> float:
    """Return the connections that fill 10 Gbit/s with these buffers, for each millisecond of the round trip."""
    # Half of a receive buffer is the kernel's own bookkeeping.
    buffer = max(min(send_buffer_bytes, receive_buffer_bytes // 2) * _USABLE, 1.0)
    return _TARGET_BYTES_PER_S / 1e3 / buffer


def lanes_each(lanes: int, *, daemons: int, ranks: int) -> int:
    """Return the lanes to ask each daemon for, if several send to a rank at once.

    The rank has to take what all of them carry. A batch is complete when the slowest lane has
    brought its part. So lanes that a path does not need cost more than processor time: they share a
    slow link unevenly, and a rank then waits for one of them while the other links are idle.

    A daemon divides the number it is asked for by the ranks. If asked for more than one it gives at
    least two, so that no rank has a single lane. A rank with several daemons has several lanes in
    any case; if its part comes to one, it asks for no more.

    Args:
        lanes: the lanes that fill the path from a single daemon; 0 if none are wanted.
        daemons: the number of daemons that send to this rank.
        ranks: the number of ranks of the job.
    """
    part = -(-lanes // max(daemons, 1))
    return 1 if daemons > 1 and 0 < part <= ranks else part


def lanes_of_rank(lanes: int, ranks: int) -> int:
    """Return this rank's share of the lanes that it would need if it were alone.

    The ranks of a job share the daemon's link.
    """
    return max(-(-lanes // ranks), min(lanes, 2))
