"""Numbers for the streams of one loader, and a name for each.

Much is kept for each number, so there must not be one for every address that a name ever had: a daemon that comes back gets the
number it had, and where there are many, one that is new gets that which was free the longest.

Covers: giving and taking back. Pure. Does not cover: what streams send (emlio.receiver.flow).
"""

from collections.abc import Sequence

__all__ = ["StreamNumbers"]

_FRESH = 64
"""So many different daemons get a number of their own, which makes logs easier to read; after that numbers are used again."""


class StreamNumbers:
    """See the module.

    Attributes:
        names: of all streams by number, also of those that are free.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """These are in use."""
        self.names = list(names)
        self._free: list[int] = []

    def take(self, name: str) -> int:
        """A number for the stream of this name."""
        number = next((number for number in self._free if self.names[number] == name), None)
        if number is None and len(self.names) >= _FRESH and self._free:
            number = self._free[0]
        if number is None:
            self.names.append(name)
            return len(self.names) - 1
        self._free.remove(number)
        self.names[number] = name
        return number

    def give_back(self, number: int) -> None:
        """Nothing is sent under it any more."""
        self._free.append(number)
