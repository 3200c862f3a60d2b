"""Which of its addresses a daemon is called at, and when the next one is tried.

Addresses are tried one at a time. One that refuses is followed by the next at once, one that is silent after a quarter of a
second; the next round waits twice as long at each. So a name with addresses of two families works where one of them leads
nowhere, and a path with a long round trip gets its time.

Covers: those decisions. Pure: times come in. Does not cover: connecting (emlio.receiver.source).
"""

from collections.abc import Sequence

from emlio.receiver.address import Peer

__all__ = ["Routes"]

_FIRST_WAIT_NS = 250_000_000
"""As long as browsers give one address before they try another (RFC 8305, section 5); more than most paths need."""

_LONGEST_WAIT_NS = 8_000_000_000


class Routes:
    """The addresses of one daemon.

    Attributes:
        way: the one in use; None while none is known.
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
        """Those to try."""
        return tuple(way for way in self._known if way not in self._foreign)

    def know(self, ways: Sequence[Peer]) -> None:
        """From now on it has these."""
        self._known = tuple(dict.fromkeys(ways))
        self._foreign.clear()

    def leads_elsewhere(self) -> bool:
        """The address in use belongs to another daemon; whether others are left. With none left all are tried again one day."""
        if self.way is not None:
            self._foreign.add(self.way)
        if self.ways:
            return True
        self._foreign.clear()
        return False

    def begin(self, now_ns: int, *, same: bool) -> Peer | None:
        """The address to call it at now.

        Args:
            now_ns: the time.
            same: the last one answered; otherwise the one after it is next.
        """
        if not (same and self.way in self.ways):
            self.way = self._next(set())
        self._tried = set() if self.way is None else {self.way}
        self._wait_ns = _FIRST_WAIT_NS
        self._began_ns = now_ns
        return self.way

    def turn(self, now_ns: int, *, refused: bool) -> Peer | None:
        """The address to try instead of the one in use, which has not connected; None while that one shall go on.

        Args:
            now_ns: the time.
            refused: the one in use refused.
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
            return None
        self.way = following
        self._tried.add(following)
        self._began_ns = now_ns
        return following

    def deadline_ns(self, *, refused: bool) -> int | None:
        """When `turn` must be called at the latest, while nothing has connected; None where there is nothing to turn to."""
        return self._due_ns(refused) if len(self.ways) > 1 else None

    def _due_ns(self, refused: bool) -> int:
        # One that refuses says so each time it is asked: there is no need to wait longer for it than the first time.
        return self._began_ns + (_FIRST_WAIT_NS if refused else self._wait_ns)

    def _next(self, without: set[Peer]) -> Peer | None:
        """The first of the others after the one in use."""
        ways = self.ways
        first = ways.index(self.way) + 1 if self.way in ways else 0
        turned = (*ways[first:], *ways[:first])
        return next((way for way in turned if way not in without), None)
