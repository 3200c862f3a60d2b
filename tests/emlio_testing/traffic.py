"""Faults and rates for the bytes of many connections."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Course", "Mark", "Marks", "Pace"]

_BURST_S = 0.02
"""The part of a second's bytes that may be saved up; a thread that is late by this time still keeps
the rate."""

_PORTION_S = 0.002
"""The least part of a second's bytes that is sent at once. Otherwise the first sender would take
every few bytes as they are earned, and the others would never get a turn."""


class Course(Enum):
    """The direction and port of bytes; each byte has one."""

    DATA = "from a daemon to ranks, over its data ports"
    CONTROL = "from a daemon to ranks, over its control port"
    CREDIT = "from ranks to a daemon, over its data ports"
    TO_DAEMON = "from ranks to a daemon, over its control port"


@dataclass(slots=True, kw_only=True)
class Mark:
    """A position in the bytes to come.

    Attributes:
        course: the course whose bytes count.
        left: the number of bytes before it.
        mask: the bits to flip in the byte there; 0 to end the connection that carried the byte
            before it.
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
    """The positions at which something happens, each once."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []

    def add(self, mark: Mark) -> None:
        """Add a position."""
        self._marks.append(mark)

    def room(self, course: Course, most: int) -> int:
        """Return how many bytes, at most `most`, may be sent before something happens.

        A byte that is changed is sent alone.
        """
        left = min((mark.left for mark in self._marks if mark.course is course), default=most)
        return min(most, max(left, 1))

    def mask(self, course: Course) -> int:
        """Return the bits of the next byte that are flipped."""
        mask = 0
        for mark in self._marks:
            if mark.course is course and mark.left == 0:
                mask ^= mark.mask
        return mask

    def went(self, course: Course, count: int) -> list[Mark]:
        """Note that bytes were sent; return the marks that were reached, and remove them.

        These are changed bytes, and ends of connections.
        """
        brought: list[Mark] = []
        for mark in list(self._marks):
            if mark.course is not course:
                continue
            mark.left -= count
            # A byte is changed once it was sent itself; a connection ends once the byte before was
            # sent.
            if mark.left < 0 or (mark.left == 0 and not mark.mask):
                self._marks.remove(mark)
                brought.append(mark)
        return brought

    def clear(self) -> None:
        """Remove all positions."""
        self._marks.clear()


class Pace:
    """A limit in bytes per second, for any number of connections."""

    def __init__(self, bytes_per_s: float, now_ns: int) -> None:
        if not bytes_per_s > 0:
            raise ValueError(f"a rate must be above 0 bytes a second, got {bytes_per_s}")
        self._rate = bytes_per_s
        self._portion = max(bytes_per_s * _PORTION_S, 1.0)
        self._saved = 0.0
        self._now_ns = now_ns

    def allowed(self, now_ns: int) -> int:
        """Return the number of bytes that may be sent now."""
        earned = (now_ns - self._now_ns) / 1e9 * self._rate
        self._now_ns = now_ns
        self._saved = min(self._saved + earned, max(self._rate * _BURST_S, 1.0))
        return int(self._saved) if self._saved >= self._portion else 0

    def went(self, count: int) -> None:
        """Note that bytes were sent."""
        self._saved -= count

    @property
    def pause_s(self) -> float:
        """The time until more bytes may be sent."""
        return max(self._portion - self._saved, 0.0) / self._rate
