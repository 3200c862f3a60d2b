"""A limit on the time that reading threads spend on searching for a stream's next record.

A stream may own few of the plan's records, and a rank may offer a catalog of which nearly nothing lies here. Such a search is
work without a result, so it must not keep a thread busy for ever.

Covers: the times. Pure. Does not cover: the search (emlio.reading.course), threads (emlio.daemon.readers).
"""

__all__ = ["FREE_NS", "Search"]

FREE_NS = 1_000_000_000
"""A search runs freely for so long: it looks at ten million records in that time."""

_RESTS = 9
"""After that it rests nine times as long as it works. It still looks at a million records a second, more than a rank takes."""


class Search:
    """The search for the next record of one stream.

    Attributes:
        rest_ns: how long it rests now.
    """

    def __init__(self) -> None:
        self.rest_ns = 0
        self._took_ns = 0

    def missed(self, took_ns: int) -> None:
        """A stretch of the plan held no record; looking at it took so long."""
        self._took_ns += took_ns
        self.rest_ns = _RESTS * took_ns if self._took_ns > FREE_NS else 0

    def found(self) -> None:
        """There was a record: the next search begins anew."""
        self._took_ns = self.rest_ns = 0
