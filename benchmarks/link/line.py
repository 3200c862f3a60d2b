"""One direction of a link: packets that wait for the line, are on their way, or arrive.

Covers: rate, delay, jitter, the bound and what went beyond it. Does not cover: loss by chance (emlio.benchmarks.link.loss);
devices.
"""

from collections import deque
from collections.abc import Callable, Sized
from typing import Generic, TypeVar

__all__ = ["Line"]

_Packet = TypeVar("_Packet", bound=Sized)


class Line(Generic[_Packet]):
    """A queue in which every packet has a due time; order is kept.

    Attributes:
        packets: that were taken.
        size_bytes: of those packets.
        overflowed: packets dropped because the queue was full. Such a packet goes as a whole, with all its segments, as a burst
            does in a router whose buffer is full.
        latest_ns: how long after its due time a packet was handed out at worst.
        held_bytes: of packets that wait or are on their way.
    """

    def __init__(
        self, *, delay_ns: int, rate_bytes_per_s: int | None, held_bytes: int, jitter: Callable[[], int] | None = None
    ) -> None:
        """See the class.

        Args:
            delay_ns: from the end of a line's one side to the other.
            rate_bytes_per_s: how fast packets leave for it, or None for at once.
            held_bytes: the most that may wait or be on its way.
            jitter: how much longer than `delay_ns` the next packet takes. One that would overtake another arrives with it.
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
        """Put a packet on its way.

        Args:
            packet: as it will be handed out.
            wire_bytes: how long it is on the line.
            now_ns: when it came.
        """
        size = len(packet)
        if self.held_bytes + size > self._most_bytes:
            self.overflowed += 1
            return
        sent_ns = now_ns
        if self._rate is not None:
            # Rounded up, so that a line is never faster than it was told to be.
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
        """When the next packet arrives, or None when there is none."""
        return self._queue[0][0] if self._queue else None

    def give(self, now_ns: int) -> _Packet | None:
        """The next packet if it has arrived by now, else None."""
        if not self._queue or self._queue[0][0] > now_ns:
            return None
        due_ns, packet = self._queue.popleft()
        self.held_bytes -= len(packet)
        if now_ns - due_ns > self.latest_ns:
            self.latest_ns = now_ns - due_ns
        return packet
