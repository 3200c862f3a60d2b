"""The pauses of sharing, while it costs more than the disk that it saves. Pure."""

from collections.abc import Callable
from typing import Final

__all__ = ["Pauses"]

_JUDGED_NS: Final = 1_000_000_000
_MOST_WORK: Final = 0.35
"""Sharing is work of threads that take turns, so it limits what they read together. Where messages take more than this part of a
processor in a second, and more time than was waited for the disk, the disk is too fast for it."""

_SETTLED: Final = 32
_FILLING: Final = 100
"""Memory that is used for the first time costs far more: it is judged once at most one page in so many is unused, or no more than
one in so many was taken in a second."""

_FIRST_PAUSE_NS: Final = 30 * _JUDGED_NS
_MOST_PAUSE_NS: Final = 960 * _JUDGED_NS
_LONG_AGO: Final = 2
"""Sharing that went well for so many times the next pause begins with a short one again."""


class Pauses:
    """The pauses of one dataset's sharing, used under a lock. Each is twice as long as the last one, unless that was long ago."""

    def __init__(self) -> None:
        self.forget()
        self.begin_anew()
        self._judged_ns = 0
        self._work_ns = 0
        self._waited_ns = 0

    def forget(self) -> None:
        """End a pause: the jobs that it was for are gone."""
        self._until_ns = 0
        self._pause_ns = _FIRST_PAUSE_NS

    def begin_anew(self) -> None:
        """Judge a new memory, which has to fill."""
        self._settled = False
        self._free = -1

    def is_on(self, now_ns: int) -> bool:
        """Return whether nothing is shared now."""
        return now_ns < self._until_ns

    def spent(self, work_ns: int, waited: Callable[[], int], now_ns: int, *, free: int, pages: int) -> int:
        """Note what a message took; return for how long sharing pauses from now on, mostly 0.

        Args:
            work_ns: processor time.
            waited: returns the time for which threads have waited for the disk, since it was opened.
            now_ns: the time.
            free: pages of the memory that hold nothing.
            pages: all of them.
        """
        self._work_ns += work_ns
        elapsed_ns = now_ns - self._judged_ns
        if elapsed_ns < _JUDGED_NS:
            return 0
        waited_ns = waited()
        disk_ns = waited_ns - self._waited_ns
        # Of a longer time nothing is known: the last judgement was before a pause.
        costly = elapsed_ns < 2 * _JUDGED_NS and self._work_ns > max(_MOST_WORK * elapsed_ns, disk_ns)
        filled = free <= pages // _SETTLED or 0 <= self._free - free <= pages // _FILLING
        was_settled, self._settled = self._settled, filled
        self._judged_ns, self._work_ns, self._waited_ns, self._free = now_ns, 0, waited_ns, free
        if not costly or not was_settled or not filled or self.is_on(now_ns):
            return 0
        pause_ns = self._pause_ns if now_ns < self._until_ns + _LONG_AGO * self._pause_ns else _FIRST_PAUSE_NS
        self._until_ns, self._pause_ns = now_ns + pause_ns, min(2 * pause_ns, _MOST_PAUSE_NS)
        return pause_ns
