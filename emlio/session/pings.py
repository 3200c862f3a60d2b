"""A rank's pings, and what their answers say about the path and the daemon's clock.

Covers: open pings, round trips, clock exchanges. Does not cover: when a ping is due
(emlio.session.rank).
"""

from collections.abc import Callable

from msgspec import UNSET, UnsetType

from emlio.clocks.exchange import Exchange
from emlio.clocks.log import ClockLog
from emlio.errors import ConfigError
from emlio.wire.control import Limit, Ping, Place, Pong
from emlio.wire.status import UserWaits
from emlio.wire.tuning import StreamTuning

__all__ = ["Pings"]

_MOST_OPEN = 10


class Pings:
    """The pings of one session.

    Attributes:
        place: returns where the user is, if it has asked for a batch.
        limit: how far the daemon lets the user go; None for as far as it likes.
        tuning: the wishes for the stream, if any; the answers then tell of the daemon's work.
        round_trip_ns: the shortest of the round trips since `take_round_trip` was called.
    """

    def __init__(
        self,
        clocks: ClockLog,
        place: Callable[[], Place | UnsetType] = lambda: UNSET,
        waits: Callable[[], UserWaits | UnsetType] = lambda: UNSET,
    ) -> None:
        """Begin with no ping sent; `clocks` takes the clock exchanges, `waits` returns the times of the user so far."""
        self.place = place
        self._waits = waits
        self.limit: Limit | None = None
        self.tuning: StreamTuning | None = None
        self.round_trip_ns: int | None = None
        self._clocks = clocks
        self._sent: dict[int, int] = {}
        self._nonce = 0
        self._telling = 0  # the ping that told the place, until it is answered

    @property
    def knows_place(self) -> bool:
        """Return whether the daemon has answered since it was told the place last."""
        return not self._telling

    def tell_place(self) -> None:
        """Note that the last ping tells a place whose answer is waited for."""
        self._telling = self._nonce

    def next(self, session: int, now_ns: int) -> Ping:
        """Return a new ping that leaves now and says where the user is."""
        self._nonce += 1
        self._sent[self._nonce] = now_ns
        while len(self._sent) > _MOST_OPEN:
            del self._sent[next(iter(self._sent))]
        place, tuning = self.place(), self.tuning or UNSET
        return Ping(session=session, nonce=self._nonce, place=place, tuning=tuning, waits=self._waits())

    def answered(self, pong: Pong, now_ns: int) -> int | None:
        """Return the round trip of the ping that this answers; None if no open ping matches."""
        self.limit = pong.limit if isinstance(pong.limit, Limit) else None
        if pong.nonce >= self._telling:
            self._telling = 0
        sent_ns = self._sent.pop(pong.nonce, None)
        if sent_ns is None:
            return None
        if pong.heard_ns:
            self._compare(sent_ns, pong, now_ns)
        round_trip_ns = now_ns - sent_ns
        self.round_trip_ns = min(self.round_trip_ns or round_trip_ns, round_trip_ns)
        return round_trip_ns

    def take_round_trip(self) -> int | None:
        """Return the shortest round trip since the last call; None if none was measured."""
        found, self.round_trip_ns = self.round_trip_ns, None
        return found

    def _compare(self, sent_ns: int, pong: Pong, now_ns: int) -> None:
        try:
            exchange = Exchange(
                sent_ns=sent_ns, heard_ns=pong.heard_ns, answered_ns=pong.said_ns or pong.heard_ns, came_ns=now_ns
            )
        except ConfigError:
            return  # this host stood still between two clock reads; skip this exchange, the next one will do
        self._clocks.add(exchange)
