"""A log of problems with peers, limited to about one line per second.

Covers: counting omitted lines, logging the same reason at most once a minute.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping

__all__ = ["RateLimitedLog"]

_EVERY_NS = 1_000_000_000

_SAME_EVERY_NS = 60_000_000_000
"""A refused rank calls again every few seconds, and all ranks of a job for the same reason."""

_MOST_REASONS = 256
"""The number of reasons remembered. Peers choose a part of their text, so it is limited."""

_AT_ONCE = 8
"""So many different reasons per minute are logged without waiting for the second to pass: a rank
that is refused once may not call again."""


class RateLimitedLog:
    """A log that peers cannot fill with invalid messages or attempted keys. For one thread."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._left_out = 0
        self._last_ns: int | None = None
        self._said_ns: OrderedDict[str, int] = OrderedDict()

    def add(
        self, text: str, now_ns: int, *, reason: str | None = None, facts: Mapping[str, object] | None = None
    ) -> None:
        """Log a text, or count it as omitted.

        Args:
            text: the problem and the peer.
            now_ns: the time.
            facts: fields of the line, for logs that machines read.
            reason: what many such texts have in common; only one text per minute is logged for it.
        """
        is_soon = self._last_ns is not None and now_ns - self._last_ns < _EVERY_NS
        if reason is not None:
            recent = {text for text, said_ns in self._said_ns.items() if now_ns - said_ns < _SAME_EVERY_NS}
            is_soon = reason in recent or (is_soon and len(recent) >= _AT_ONCE)
        if is_soon:
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last line like this)" if self._left_out else ""
        self._left_out, self._last_ns = 0, now_ns
        if reason is not None:
            self._said_ns.pop(reason, None)
            self._said_ns[reason] = now_ns
            while len(self._said_ns) > _MOST_REASONS:
                self._said_ns.popitem(last=False)
        self._log.warning("%s%s", text, more, extra=facts)
