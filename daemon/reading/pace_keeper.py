"""The observations from which one stream's pace is decided.

Covers: a clock, counts of what the network took, deciding when it is time. Does not cover: the
decision (emlio.daemon.reading.pace).
"""

from emlio.clock import Clock
from emlio.daemon.reading.pace import LOOK_NS, Look, Marks, Pace, Room

__all__ = ["PaceKeeper"]


class PaceKeeper:
    """The pace of one stream. Used under the stream's lock."""

    def __init__(self, clock: Clock, *, message_bytes: int, least_bytes: int) -> None:
        """See the class.

        Args:
            clock: the clock.
            message_bytes: the size to which messages are filled.
            least_bytes: the bytes that must be allowed in flight, see `Room`.
        """
        self.pace = Pace()
        self._clock = clock
        self._message_bytes = message_bytes
        self._least_bytes = least_bytes
        self._since_ns = clock.monotonic_ns()
        self._taken_bytes = 0
        self._dry_ns = 0
        self._dry_since_ns: int | None = None
        self._woken_ns: int | None = None
        self._delay_ns = 0

    def taken(self, size_bytes: int, *, dry: bool, woken: bool = False) -> None:
        """Note that the network took bytes.

        Args:
            size_bytes: the number of bytes.
            dry: whether nothing is left that could be sent.
            woken: whether a reading thread is called.
        """
        self._taken_bytes += size_bytes
        if dry and self._dry_since_ns is None:
            self._dry_since_ns = self._clock.monotonic_ns()
        if woken:
            self._woken_ns = self._clock.monotonic_ns()

    def made(self) -> None:
        """Note that a message is ready."""
        now_ns = self._clock.monotonic_ns()
        if self._dry_since_ns is not None:
            self._dry_ns += now_ns - self._dry_since_ns
            self._dry_since_ns = None
        if self._woken_ns is not None:
            self._delay_ns = max(self._delay_ns, now_ns - self._woken_ns)
            self._woken_ns = None

    def marks(self, most_bytes: int) -> Marks:
        """Return the marks between which to read, after a new decision if it is time for one."""
        now_ns = self._clock.monotonic_ns()
        look = Look(
            elapsed_ns=now_ns - self._since_ns,
            taken_bytes=self._taken_bytes,
            dry_ns=self._dry_ns,
            delay_ns=self._delay_ns,
        )
        if look.elapsed_ns >= LOOK_NS or look.ran_dry:
            self.pace = self.pace.after(look)
            self._since_ns, self._taken_bytes, self._dry_ns, self._delay_ns = now_ns, 0, 0, 0
        room = Room(
            message_bytes=self._message_bytes, least_bytes=min(self._least_bytes, most_bytes), most_bytes=most_bytes
        )
        return self.pace.marks(room)
