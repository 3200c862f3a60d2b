"""How a client's stream is doing, as its rank is told.

Covers: the answer to a ping, the last word before goodbye. Used by the control thread. Does not cover: counting
(emlio.daemon.streams), sending.
"""

import logging

from emlio.clock import Clock
from emlio.daemon.client import Client
from emlio.daemon.sender import StreamTotals
from emlio.daemon.streams import Streams
from emlio.wire.control import Pong

__all__ = ["Reports"]

_LOG = logging.getLogger("emlio.daemon")


class Reports:
    """See the module."""

    def __init__(self, streams: Streams, clock: Clock) -> None:
        self._streams = streams
        self._clock = clock

    def pong(self, client: Client, nonce: int, heard_ns: int = 0) -> Pong:
        """What its stream did, if it has one; and the time, where a ping asked for it.

        Args:
            client: who is told.
            nonce: of the ping, 0 where there was none.
            heard_ns: when that came out of the socket.
        """
        totals = self._streams.totals(client.stream) if client.stream is not None else StreamTotals()
        return Pong(
            nonce=nonce,
            sent_bytes=totals.sent_bytes,
            blocked_ns=totals.blocked_ns,
            starved_ns=totals.starved_ns,
            heard_ns=heard_ns,
            said_ns=self._clock.monotonic_ns() if heard_ns else 0,
        )

    def last(self, client: Client) -> Pong | None:
        """How much is still on its way, so that the rank can wait for it; None for a client without a stream."""
        stream = client.stream
        if stream is None:
            return None
        sent = self._streams.totals(stream).sent_bytes
        if stream.in_flight_bytes:
            _LOG.warning("%s not drained: %s bytes did not leave in time", client.label, f"{stream.in_flight_bytes:,}")
            sent = 0  # what is in the lanes is dropped with them: nothing can be promised
        else:
            _LOG.info("%s drained: %s bytes sent", client.label, f"{sent:,}")
        return Pong(nonce=0, sent_bytes=sent)
