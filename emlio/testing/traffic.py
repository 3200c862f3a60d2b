"""What is to happen to the bytes of many connections, and at which of them.

Covers: places in the bytes to come where something happens, a rate that all share. Pure. Does not cover: sockets
(emlio.testing.proxied_connection), who asks for it (emlio.testing.proxy).
"""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Course", "Mark", "Marks", "Pace"]

_BURST_S = 0.02
"""How much of a rate may be saved up; a thread that came late by that much still keeps the rate."""

_PORTION_S = 0.002
"""How much of a rate goes at once at least: otherwise the first sender would take every few bytes as they are earned, and
the others would never have their turn."""


class Course(Enum):
    """Where bytes go; each byte is of one."""

    DATA = "from a daemon to ranks, over its data ports"
    CONTROL = "from a daemon to ranks, over its control port"
    TO_DAEMON = "from ranks to a daemon, over any port"


@dataclass(slots=True, kw_only=True)
class Mark:
    """A place in the bytes to come.

    Attributes:
        course: of which bytes.
        left: how many of them go before it.
        mask: turns the bits of the byte there; 0 for the end of the connection that carried the byte before it.
    """

    course: Course
    left: int
    mask: int

    def __post_init__(self) -> None:
        least = 0 if self.mask else 1
        if self.left < least:
            raise ValueError(f"a mark must lie at least {least} bytes ahead, got {self.left}")
        if not 0 <= self.mask <= 255:
            raise ValueError(f"a mask must be of one byte, got {self.mask}")


class Marks:
    """The places where something happens, each once."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []

    def add(self, mark: Mark) -> None:
        """One more."""
        self._marks.append(mark)

    def room(self, course: Course, most: int) -> int:
        """How many bytes, at most so many, may go before something happens; a byte that is changed goes alone."""
        left = min((mark.left for mark in self._marks if mark.course is course), default=most)
        return min(most, max(left, 1))

    def mask(self, course: Course) -> int:
        """The bits of the next byte that are turned."""
        mask = 0
        for mark in self._marks:
            if mark.course is course and mark.left == 0:
                mask ^= mark.mask
        return mask

    def went(self, course: Course, count: int) -> list[Mark]:
        """So many bytes went; returns the marks they brought, which are done with: changed bytes, and ends."""
        brought: list[Mark] = []
        for mark in list(self._marks):
            if mark.course is not course:
                continue
            mark.left -= count
            # A byte is changed once it went itself; a connection ends as soon as the byte before went.
            if mark.left < 0 or (mark.left == 0 and not mark.mask):
                self._marks.remove(mark)
                brought.append(mark)
        return brought

    def clear(self) -> None:
        """Nothing happens any more."""
        self._marks.clear()


class Pace:
    """So many bytes a second and no more, however many connections they take."""

    def __init__(self, bytes_per_s: float, now_ns: int) -> None:
        if not bytes_per_s > 0:
            raise ValueError(f"a rate must be above 0 bytes a second, got {bytes_per_s}")
        self._rate = bytes_per_s
        self._portion = max(bytes_per_s * _PORTION_S, 1.0)
        self._saved = 0.0
        self._now_ns = now_ns

    def allowed(self, now_ns: int) -> int:
        """How many bytes may go now."""
        earned = (now_ns - self._now_ns) / 1e9 * self._rate
        self._now_ns = now_ns
        self._saved = min(self._saved + earned, max(self._rate * _BURST_S, 1.0))
        return int(self._saved) if self._saved >= self._portion else 0

    def went(self, count: int) -> None:
        """So many went."""
        self._saved -= count

    @property
    def pause_s(self) -> float:
        """How long to wait until more may go."""
        return max(self._portion - self._saved, 0.0) / self._rate
