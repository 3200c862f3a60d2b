"""The bytes of answers that a daemon is asked for at once. Pure."""

import msgspec

from emlio.wire.limits import MOST_RANGE_QUESTIONS, RANGE_BYTES_PER_REPLY

__all__ = ["FIRST_MESSAGE_BYTES", "AnswerWindow", "Awaited"]

_AHEAD_NS = 50_000_000
"""As many bytes as come in this time are asked for beyond those of a round trip: neither thread must be prompt, and a queue
on the path, in which an answer that is waited for stands behind the others, is no longer."""

_LEAST_BYTES = 128 << 10
_FIRST_BYTES = 1 << 20
_MOST_BYTES = 64 << 20

_MESSAGES = 2
_LEAST_MESSAGE_BYTES = 64 << 10
"""A window has two messages, and on a slow path they are small: one takes no longer than the heartbeat's timeout (3 s)
even where a path of 10 Mbit/s is shared with sixteen lanes."""

FIRST_MESSAGE_BYTES = _FIRST_BYTES // _MESSAGES

_MOST_QUESTIONS = MOST_RANGE_QUESTIONS - 16
"""The others that may be open are left for short answers, which wait for no room."""

_SMOOTH = 4
"""Each answer makes a window that is too large smaller by a fourth of the way."""


class Awaited(msgspec.Struct, frozen=True):
    """An answer that was asked for: its bytes, when, how many had come before, and whether it filled the window."""

    size_bytes: int
    asked_ns: int
    came_bytes: int
    fills: bool


class AnswerWindow:
    """The window of one session: as many bytes as come in a round trip, and a little more."""

    def __init__(self) -> None:
        """Begin with no answer under way."""
        self._bytes = _FIRST_BYTES
        self._under_way = 0
        self._open = 0
        self._came = 0

    @property
    def size_bytes(self) -> int:
        """The bytes that may be under way; the last answer may exceed them."""
        return self._bytes

    @property
    def message_bytes(self) -> int:
        """The most bytes of one answer."""
        return min(max(self._bytes // _MESSAGES, _LEAST_MESSAGE_BYTES), RANGE_BYTES_PER_REPLY)

    @property
    def has_room(self) -> bool:
        """True if another long answer may be asked for."""
        return self._under_way < self._bytes and self._open < _MOST_QUESTIONS

    def ask(self, size_bytes: int, now_ns: int) -> Awaited:
        """Take note that an answer is asked for, long or short."""
        self._under_way += size_bytes
        self._open += 1
        return Awaited(size_bytes, now_ns, self._came, 2 * self._under_way >= self._bytes)

    def take(self, awaited: Awaited, now_ns: int, round_trip_ns: int) -> None:
        """Take note that an answer came; learn from it what comes in a round trip, if that is what bounds it."""
        self._under_way -= awaited.size_bytes
        self._open -= 1
        self._came += awaited.size_bytes
        if awaited.fills:
            came = self._came - awaited.came_bytes
            wanted = came * (round_trip_ns + _AHEAD_NS) // max(now_ns - awaited.asked_ns, 1)
            if (
                wanted > self._bytes
            ):  # as long as more comes than was asked for in time: within a few round trips it is enough
                self._bytes = min(wanted, _MOST_BYTES)
            else:
                self._bytes = max(self._bytes + (wanted - self._bytes) // _SMOOTH, _LEAST_BYTES)
