"""A rank's pings, and what their answers say about the path and the daemon's clock.

Covers: open pings, round trips, clock exchanges. Does not cover: when a ping is due
(emlio.session.rank).
"""

from msgspec import UnsetType

from emlio.clocks.exchange import Exchange
from emlio.clocks.log import ClockLog
from emlio.errors import ConfigError
from emlio.wire.control import Ping, Place, Pong

__all__ = ["Pings"]

_MOST_OPEN = 10


class Pings:
    """The pings of one session."""

    def __init__(self, clocks: ClockLog) -> None:
        """Begin with no ping sent.

        Args:
            clocks: takes the clock exchanges.
        """
        self._clocks = clocks
        self._sent: dict[int, int] = {}
        self._nonce = 0

    @property
    def last(self) -> int:
        """The nonce of the last ping."""
        return self._nonce

    def next(self, session: int, now_ns: int, place: Place | UnsetType) -> Ping:
        """Return a new ping that leaves now and says where the user is."""
        self._nonce += 1
        self._sent[self._nonce] = now_ns
        while len(self._sent) > _MOST_OPEN:
            del self._sent[next(iter(self._sent))]
        return Ping(session=session, nonce=self._nonce, place=place)

    def answered(self, pong: Pong, now_ns: int) -> int | None:
        """Return the round trip of the ping that this answers; None if no open ping matches."""
        sent_ns = self._sent.pop(pong.nonce, None)
        if sent_ns is None:
            return None
        if pong.heard_ns:
            self._compare(sent_ns, pong, now_ns)
        return now_ns - sent_ns

    def _compare(self, sent_ns: int, pong: Pong, now_ns: int) -> None:
        try:
            exchange = Exchange(
                sent_ns=sent_ns, heard_ns=pong.heard_ns, answered_ns=pong.said_ns or pong.heard_ns, came_ns=now_ns
            )
        except ConfigError:
            return  # this host stood still between two clock reads; skip this exchange, the next one will do
        self._clocks.add(exchange)
