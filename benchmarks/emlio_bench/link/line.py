"""One direction of a link: packets that wait for the line, are in transit, or have arrived.

Covers: rate, delay, jitter, the limit of held bytes, and the count of packets dropped beyond it.
Does not cover: random loss (emlio_bench.link.loss); devices.
"""

from collections import deque
from collections.abc import Callable, Sized
from typing import Generic, TypeVar

__all__ = ["Line"]

_Packet = TypeVar("_Packet", bound=Sized)


class Line(Generic[_Packet]):
    """A queue that gives every packet a due time and keeps the order.

    Attributes:
        packets: packets accepted.
        size_bytes: bytes of those packets on the wire.
        overflowed: packets dropped because the queue was full. Such a packet is dropped as a whole,
            with all its segments, like a burst in a router whose buffer is full.
        latest_ns: greatest delay of a packet beyond its due time.
        held_bytes: bytes of packets that wait or are in transit.
    """

    def __init__(
        self, *, delay_ns: int, rate_bytes_per_s: int | None, held_bytes: int, jitter: Callable[[], int] | None = None
    ) -> None:
        """Create an empty line.

        Args:
            delay_ns: time from one end of the line to the other.
            rate_bytes_per_s: rate at which packets enter the line, or None for no limit.
            held_bytes: most bytes that may wait or be in transit.
            jitter: returns the extra delay of the next packet. A packet that would overtake another
                one arrives together with it.
        """
        self.packets = 0
        self.size_bytes = 0
        self.overflowed = 0
        self.latest_ns = 0
        self.held_bytes = 0
        self._delay_ns = delay_ns
        self._rate = rate_bytes_per_s
        self._most_bytes = held_bytes
        self._free_ns = 0
        self._jitter = jitter
        self._latest_due_ns = 0
        self._queue: deque[tuple[int, _Packet]] = deque()

    def take(self, packet: _Packet, wire_bytes: int, now_ns: int) -> None:
        """Accept a packet, or drop it if the queue is full.

        Args:
            packet: the packet, returned by `give` as it is.
            wire_bytes: length of the packet on the wire.
            now_ns: time of its arrival at the line.
        """
        size = len(packet)
        if self.held_bytes + size > self._most_bytes:
            self.overflowed += 1
            return
        sent_ns = now_ns
        if self._rate is not None:
            # Rounded up, so that a line is never faster than specified.
            sent_ns = max(now_ns, self._free_ns) - (-wire_bytes * 1_000_000_000 // self._rate)
            self._free_ns = sent_ns
        self.held_bytes += size
        self.packets += 1
        self.size_bytes += wire_bytes
        due_ns = sent_ns + self._delay_ns
        if self._jitter is not None:
            due_ns = self._latest_due_ns = max(due_ns + self._jitter(), self._latest_due_ns)
        self._queue.append((due_ns, packet))

    def next_ns(self) -> int | None:
        """Return the due time of the next packet, or None if there is none."""
        return self._queue[0][0] if self._queue else None

    def give(self, now_ns: int) -> _Packet | None:
        """Return the next packet if it is due, else None."""
        if not self._queue or self._queue[0][0] > now_ns:
            return None
        due_ns, packet = self._queue.popleft()
        self.held_bytes -= len(packet)
        if now_ns - due_ns > self.latest_ns:
            self.latest_ns = now_ns - due_ns
        return packet
