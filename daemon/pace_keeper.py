"""What one stream's pace is decided from: a clock, and counts of what the network took.

Covers: noting, and looking when it is time. Does not cover: the decision (emlio.daemon.pace). Used under the stream's lock.
"""

from emlio.clock import Clock
from emlio.daemon.pace import LOOK_NS, Look, Marks, Pace, Room

__all__ = ["PaceKeeper"]


class PaceKeeper:
    """See the module."""

    def __init__(self, clock: Clock, *, message_bytes: int, least_bytes: int) -> None:
        """See the class.

        Args:
            clock: tells the time.
            message_bytes: what a message is filled to.
            least_bytes: what must be allowed in flight, see `Room`.
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
        """The network took so much.

        Args:
            size_bytes: of it.
            dry: nothing is left that could be sent.
            woken: a reading thread is called.
        """
        self._taken_bytes += size_bytes
        if dry and self._dry_since_ns is None:
            self._dry_since_ns = self._clock.monotonic_ns()
        if woken:
            self._woken_ns = self._clock.monotonic_ns()

    def made(self) -> None:
        """A message is ready."""
        now_ns = self._clock.monotonic_ns()
        if self._dry_since_ns is not None:
            self._dry_ns += now_ns - self._dry_since_ns
            self._dry_since_ns = None
        if self._woken_ns is not None:
            self._delay_ns = max(self._delay_ns, now_ns - self._woken_ns)
            self._woken_ns = None

    def marks(self, most_bytes: int) -> Marks:
        """Between which bytes to read on, with a fresh look if it is time for one."""
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
