"""How many connections a path needs.

One TCP connection carries at most a socket buffer per round trip. With stock buffers (4 MB) and 30 ms that is 1 Gbit/s, so a fast
and long path takes several; a short one takes a single one, which costs least.

Covers: the number from what was measured, and from the little that is known before a session; the part of each of several
daemons. Does not cover: sharing a daemon's link between ranks, which the daemon decides.
"""

from emlio.wire.limits import MAX_LANES

__all__ = ["are_enough", "lanes_each", "lanes_for", "lanes_to_reserve"]

_TARGET_BYTES_PER_S = 1_250_000_000
"""10 Gbit/s: what a storage node's link usually is. A slower link is filled by fewer, which leaves some to spare while
connections recover from a loss one by one. More than it takes would cost both ends processor time and memory."""

_USABLE = 0.85
"""The part of a socket buffer that is payload in flight, as measured at 30 ms."""

_SHORT_PATH_NS = 1_000_000
"""Below one millisecond a single connection reaches any link's rate, and the figure is mostly scheduling noise."""

_MOST_TOO_MANY = 2
"""Where a daemon's buffers are larger than was thought: what so many lanes cost more is less than what their haste is worth."""

_FEWEST_ENOUGH = 0.66
"""Where they are smaller: with two thirds of the lanes a stream is nearly as fast."""


def lanes_for(round_trip_ns: int, send_buffer_bytes: int, receive_buffer_bytes: int, most: int = MAX_LANES) -> int:
    """Connections that fill 10 Gbit/s over this round trip with these buffers; at most `most`, which a daemon may set."""
    if round_trip_ns < _SHORT_PATH_NS:
        return 1
    # Half of a receive buffer is the kernel's own bookkeeping.
    buffer = max(min(send_buffer_bytes, receive_buffer_bytes // 2) * _USABLE, 1.0)
    needed = _TARGET_BYTES_PER_S * round_trip_ns / 1e9 / buffer
    return max(1, min(MAX_LANES, most, -int(-needed // 1)))


def lanes_to_reserve(round_trip_ns: int, send_buffer_bytes: int, receive_buffer_bytes: int) -> int:
    """The same before the daemon has said anything; 0 on a short path, where lanes are opened in no time.

    Args:
        round_trip_ns: of TCP's handshake.
        send_buffer_bytes: of this host, whose like the daemon's may be.
        receive_buffer_bytes: of this host.
    """
    return lanes_for(round_trip_ns, send_buffer_bytes, receive_buffer_bytes) if round_trip_ns >= _SHORT_PATH_NS else 0


def lanes_each(lanes: int, *, daemons: int, ranks: int) -> int:
    """Of so many lanes those to ask each daemon for, where several send to a rank at once: it has to take what all of them carry.

    A batch is whole when the slowest lane has brought its part. So lanes that a path does not need cost more than processor
    time: where a line is slow they share it unevenly, and a rank then waits for one of them while the other lines are idle.

    A daemon divides what it is asked for by the ranks. It gives two where it is asked for more than one, so that no rank has a
    single lane; a rank with several daemons has as many in any case, and where its part comes to one it asks for no more.

    Args:
        lanes: that fill the path from a single daemon; 0 where none are wanted.
        daemons: that send to this rank.
        ranks: of the job.
    """
    part = -(-lanes // max(daemons, 1))
    return 1 if daemons > 1 and 0 < part <= ranks else part


def are_enough(reserved: int, needed: int) -> bool:
    """Whether a stream, which may run for days, is to begin on lanes that were reserved before much was known.

    Args:
        reserved: how many were asked for then.
        needed: how many would be now.
    """
    return needed * _FEWEST_ENOUGH <= reserved <= needed * _MOST_TOO_MANY
