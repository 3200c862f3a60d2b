"""Complaints in the log about peers that nobody knows, not more than one a second.

Covers: counting those left out. Does not cover: what is complained of.
"""

import logging

__all__ = ["Complaints"]

_EVERY_NS = 1_000_000_000


class Complaints:
    """A peer that talks nonsense, or tries keys, must not fill the log. For one thread."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._left_out = 0
        self._last_ns: int | None = None

    def add(self, text: str, now_ns: int) -> None:
        """Say it, or count it."""
        if self._last_ns is not None and now_ns - self._last_ns < _EVERY_NS:
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        self._left_out, self._last_ns = 0, now_ns
        self._log.warning("%s%s", text, more)
