"""The choice among a daemon's addresses, and when the next one is tried.

Addresses are tried one at a time. An address that refuses is followed by the next at once, a silent
one after a quarter of a second. The next round waits twice as long at each. So a name with
addresses of two families works if one of them leads nowhere, and a path with a long round trip gets
its time.

Covers: those decisions. Pure: times come in. Does not cover: connecting
(emlio.receiver.machine.source).
"""

from collections.abc import Sequence

from emlio.receiver.addresses.address import Peer

__all__ = ["Routes"]

_FIRST_WAIT_NS = 250_000_000
"""The time that browsers give one address before trying another (RFC 8305, section 5); more than
most paths need."""

_LONGEST_WAIT_NS = 8_000_000_000


class Routes:
    """The addresses of one daemon.

    Attributes:
        way: the address in use; None if none is known.
    """

    def __init__(self, ways: Sequence[Peer]) -> None:
        self.way: Peer | None = None
        self._known = tuple(ways)
        self._foreign: set[Peer] = set()
        self._tried: set[Peer] = set()
        self._wait_ns = _FIRST_WAIT_NS
        self._began_ns = 0

    @property
    def ways(self) -> tuple[Peer, ...]:
        """The addresses to try."""
        return tuple(way for way in self._known if way not in self._foreign)

    def know(self, ways: Sequence[Peer]) -> None:
        """Set the daemon's addresses."""
        self._known = tuple(dict.fromkeys(ways))
        self._foreign.clear()

    def leads_elsewhere(self) -> bool:
        """Exclude the address in use, which is another daemon's; return whether others are left.

        If none is left, all may be tried again.
        """
        if self.way is not None:
            self._foreign.add(self.way)
        if self.ways:
            return True
        self._foreign.clear()
        return False

    def begin(self, now_ns: int, *, same: bool) -> Peer | None:
        """Return the address to connect to now.

        Args:
            now_ns: the time.
            same: the last address answered, so use it again; otherwise use the one after it.
        """
        if not (same and self.way in self.ways):
            self.way = self._next(set())
        self._tried = set() if self.way is None else {self.way}
        self._wait_ns = _FIRST_WAIT_NS
        self._began_ns = now_ns
        return self.way

    def turn(self, now_ns: int, *, refused: bool) -> Peer | None:
        """Return the address to try next, as the one in use has not connected; None to keep it.

        Args:
            now_ns: the time.
            refused: the address in use refused.
        """
        if self.way in self.ways:
            if len(self.ways) < 2:
                return None
            untried = self._next(self._tried) is not None
            if now_ns < self._due_ns(refused) and not (refused and untried):
                return None
            if not untried:
                self._tried.clear()
                self._wait_ns = self._wait_ns if refused else min(2 * self._wait_ns, _LONGEST_WAIT_NS)
        following = self._next(self._tried)
        if following is None:
            # The one in use is no longer among its addresses, and all others were tried.
            self._tried.clear()
            following = self._next(self._tried)
        if following is None:
            return None
        self.way = following
        self._tried.add(following)
        self._began_ns = now_ns
        return following

    def deadline_ns(self, *, refused: bool) -> int | None:
        """The latest time at which `turn` must be called; None if there is no other address."""
        return self._due_ns(refused) if len(self.ways) > 1 else None

    def _due_ns(self, refused: bool) -> int:
        # A refusing address refuses each time: no need to wait longer for it than the first time.
        return self._began_ns + (_FIRST_WAIT_NS if refused else self._wait_ns)

    def _next(self, without: set[Peer]) -> Peer | None:
        """Return the first of the others after the address in use."""
        ways = self.ways
        first = ways.index(self.way) + 1 if self.way in ways else 0
        turned = (*ways[first:], *ways[:first])
        return next((way for way in turned if way not in without), None)
