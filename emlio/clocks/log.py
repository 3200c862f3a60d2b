"""A bounded log of the best exchanges with another node's clock.

Covers: keeping the shortest round trips of each time window. Does not cover: exchanging; combining
the results (emlio.clocks.fit).
"""

from emlio.clocks.exchange import Exchange

__all__ = ["ClockLog"]

_WINDOW_NS = 10_000_000_000
_KEPT = 8
_MOST_WINDOWS = 1024
"""Nearly three hours of ten-second windows.

After that, windows of the older half are merged: the latest hour and a half keeps its resolution,
and everything before is spread evenly over the other half.
"""


class ClockLog:
    """A log for one thread."""

    def __init__(self, *, most_windows: int = _MOST_WINDOWS) -> None:
        """Create an empty log.

        Args:
            most_windows: limit of windows; at least 4.
        """
        self._most_windows = most_windows
        self._windows: dict[int, list[Exchange]] = {}

    def add(self, exchange: Exchange) -> None:
        """Add an exchange; it is kept if it is among the best of its window."""
        number = exchange.at_ns // _WINDOW_NS
        self._windows[number] = _best([*self._windows.get(number, ()), exchange])
        if len(self._windows) > self._most_windows:
            self._join()

    def _join(self) -> None:
        """Merge the two neighbours of the older half that together cover the least time."""
        numbers = sorted(self._windows)
        at = min(range(len(numbers) // 2), key=lambda place: numbers[place + 2] - numbers[place])
        self._windows[numbers[at]] = _best([*self._windows[numbers[at]], *self._windows.pop(numbers[at + 1])])

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The kept exchanges, in the order of time."""
        return tuple(sorted((one for window in self._windows.values() for one in window), key=lambda one: one.at_ns))


def _best(window: list[Exchange]) -> list[Exchange]:
    return sorted(window, key=lambda one: (one.round_trip_ns, one.at_ns))[:_KEPT]
