"""A limit on the time spent searching for a stream's next record.

A stream may own few of the plan's records, and a rank may offer a catalog of which almost nothing
is held here. Such a search is work without a result, so it must not keep a thread busy forever.

Covers: the times. Pure. Does not cover: the search (emlio.reading.message_planner), threads
(emlio.daemon.reading.readers).
"""

__all__ = ["FREE_NS", "Search"]

FREE_NS = 1_000_000_000
"""The time for which a search runs freely; it looks at ten million records in that time."""

_RESTS = 9
"""After that it rests nine times as long as it works. It still looks at a million records a second,
more than a rank takes."""


class Search:
    """The search for the next record of one stream.

    Attributes:
        rest_ns: the time that it rests now.
    """

    def __init__(self) -> None:
        self.rest_ns = 0
        self._took_ns = 0

    def missed(self, took_ns: int) -> None:
        """Note that a stretch of the plan held no record, and the time it took."""
        self._took_ns += took_ns
        self.rest_ns = _RESTS * took_ns if self._took_ns > FREE_NS else 0

    def found(self) -> None:
        """Note that a record was found: the next search begins anew."""
        self._took_ns = self.rest_ns = 0
