"""The numbers of a stream's messages that were received, so that none is taken twice.

Messages come over several lanes, so out of order. Kept are the next number after the highest one,
and the gaps before it. There are about as many gaps as messages in flight on other lanes, however
long the stream is.

Covers: the numbers, with bounded memory. Pure. Does not cover: losses within a lane
(emlio.receiver.placement.reorder), the authenticity of a message (emlio.wire.seal).
"""

from bisect import bisect_right
from operator import attrgetter
from typing import Final

from emlio.errors import RemoteProtocolError

__all__ = ["MOST_GAPS", "MessageNumbers"]

MOST_GAPS: Final = 1 << 16
"""A lane's buffers hold 16 MiB, which is 16,384 messages of 1 KiB. Each gap takes about 100
bytes."""


class MessageNumbers:
    """The message numbers of one stream. Call `check` before a message is opened, `add` after."""

    def __init__(self, label: str, *, most_gaps: int = MOST_GAPS) -> None:
        """Begin before the first message.

        Args:
            label: the stream's name, for errors.
            most_gaps: the most gaps that are kept; beyond that, the numbers in the oldest gaps
                count as taken.
        """
        self._label = label
        self._most_gaps = most_gaps
        self._next = 0
        self._gaps: list[range] = []  # rising, none is empty, and none touches another

    @property
    def gaps(self) -> int:
        """The number of gaps that are kept."""
        return len(self._gaps)

    def check(self, number: int) -> None:
        """Raise `RemoteProtocolError` if this number was taken, or is too old to tell."""
        if number < self._next and number not in self._gap(number):
            raise RemoteProtocolError(
                f"{self._label}: each message must come once, message {number} was repeated or came too late to check"
            )

    def add(self, number: int) -> None:
        """Take a number; raises `RemoteProtocolError` like `check`."""
        self.check(number)
        if number >= self._next:
            if number > self._next:
                self._gaps.append(range(self._next, number))
                del self._gaps[: -self._most_gaps]
            self._next = number + 1
            return
        at = self._before(number)
        gap = self._gaps[at]
        self._gaps[at : at + 1] = [rest for rest in (range(gap.start, number), range(number + 1, gap.stop)) if rest]
        del self._gaps[: -self._most_gaps]

    def _gap(self, number: int) -> range:
        at = self._before(number)
        return self._gaps[at] if at >= 0 else range(0)

    def _before(self, number: int) -> int:
        """Return the index of the last gap that begins at or before this number, else -1."""
        return bisect_right(self._gaps, number, key=attrgetter("start")) - 1
