"""The pings of a rank, and what their answers tell of the way and of the daemon's clock.

Covers: which are open, round trips, exchanges with the clock. Does not cover: when one is due (emlio.session.rank).
"""

from emlio.energy.clock_log import ClockLog
from emlio.energy.exchange import Exchange
from emlio.errors import ConfigError
from emlio.wire.control import Ping, Pong

__all__ = ["Pings"]

_MOST_OPEN = 10


class Pings:
    """See the module."""

    def __init__(self, clocks: ClockLog) -> None:
        """None sent yet.

        Args:
            clocks: takes the exchanges.
        """
        self._clocks = clocks
        self._sent: dict[int, int] = {}
        self._nonce = 0

    def next(self, session: int, now_ns: int) -> Ping:
        """One more, which leaves now."""
        self._nonce += 1
        self._sent[self._nonce] = now_ns
        while len(self._sent) > _MOST_OPEN:
            del self._sent[next(iter(self._sent))]
        return Ping(session=session, nonce=self._nonce)

    def answered(self, pong: Pong, now_ns: int) -> int | None:
        """The round trip of the ping it answers; None where it answers none that is open."""
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
            return  # a machine that stood still between two looks at its clock; it says nothing, and the next one does
        self._clocks.add(exchange)
