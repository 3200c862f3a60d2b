"""The memory of long answers that their clients have not taken yet."""

from collections import deque

from emlio.daemon.network.transport import Sent

__all__ = ["UnderWay"]


class UnderWay:
    """The answers under way to each client. Used by the control thread."""

    def __init__(self, most_each: int) -> None:
        """Begin without answers; `most_each` is the most bytes of one client's."""
        self._most_each = most_each
        self._sent: dict[bytes, deque[tuple[Sent, int]]] = {}

    @property
    def any(self) -> bool:
        """True if answers still take memory, including those to clients that have gone."""
        return any(self._bytes(owner) for owner in list(self._sent))

    def has_room(self, owner: bytes) -> bool:
        """Return whether another answer may be made for this client."""
        return self._bytes(owner) < self._most_each

    def add(self, owner: bytes, sent: Sent, size_bytes: int) -> None:
        """Note an answer."""
        if sent.under_way:
            self._sent.setdefault(owner, deque()).append((sent, size_bytes))

    def _bytes(self, owner: bytes) -> int:
        left = deque(one for one in self._sent.pop(owner, ()) if one[0].under_way)
        if left:
            self._sent[owner] = left
        return sum(size_bytes for _, size_bytes in left)
