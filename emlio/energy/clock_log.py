"""The exchanges with another node's clock that are worth keeping.

Covers: the shortest round trips of each stretch of time, in memory that does not grow without end. Does not cover: exchanging;
what they say together (emlio.energy.clocks).
"""

from emlio.energy.exchange import Exchange

__all__ = ["ClockLog"]

_WINDOW_NS = 10_000_000_000
_KEPT = 8
_MOST_WINDOWS = 1024
"""Nearly three hours of ten seconds each. Then the older half is told apart less finely: an hour and a half stays as it is, and
all that was before is spread evenly over the other half."""


class ClockLog:
    """Used by one thread."""

    def __init__(self, *, most_windows: int = _MOST_WINDOWS) -> None:
        """Empty.

        Args:
            most_windows: so many stretches are told apart; at least 4.
        """
        self._most_windows = most_windows
        self._windows: dict[int, list[Exchange]] = {}

    def add(self, exchange: Exchange) -> None:
        """One more; kept if it is among the best of its time."""
        number = exchange.at_ns // _WINDOW_NS
        self._windows[number] = _best([*self._windows.get(number, ()), exchange])
        if len(self._windows) > self._most_windows:
            self._join()

    def _join(self) -> None:
        """The two neighbours that are shortest together, of the older half."""
        numbers = sorted(self._windows)
        at = min(range(len(numbers) // 2), key=lambda place: numbers[place + 2] - numbers[place])
        self._windows[numbers[at]] = _best([*self._windows[numbers[at]], *self._windows.pop(numbers[at + 1])])

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Those kept, in the order of time."""
        return tuple(sorted((one for window in self._windows.values() for one in window), key=lambda one: one.at_ns))


def _best(window: list[Exchange]) -> list[Exchange]:
    return sorted(window, key=lambda one: (one.round_trip_ns, one.at_ns))[:_KEPT]
