"""Numbers for the streams of one loader, and a name for each.

Much state is kept per number, so the numbers must not grow with every address that a host name ever
had. A daemon that comes back gets its old number. Once there are many, a new daemon gets the number
that has been free the longest.

Covers: taking and giving back. Pure. Does not cover: the contents of streams
(emlio.receiver.machine.shard_assignment).
"""

from collections.abc import Sequence

__all__ = ["StreamNumbers"]

_FRESH = 64
"""This many daemons get a number of their own, for readable logs; after that numbers are reused."""


class StreamNumbers:
    """The stream numbers of one loader.

    Attributes:
        names: the names of all streams by number, including free ones.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Begin with these streams in use."""
        self.names = list(names)
        self._free: list[int] = []

    def take(self, name: str) -> int:
        """Return a number for the stream of this name."""
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
        """Free the number: nothing is sent under it any more."""
        self._free.append(number)
