"""Reports to a rank about its stream.

Covers: the answer to a ping, the last message before goodbye. Does not cover: counting
(emlio.daemon.lanes.sender), sending.
"""

import logging
from collections.abc import Iterable

from emlio.clock import Clock
from emlio.daemon.control.client import Client
from emlio.daemon.lanes.sender import LaneSender
from emlio.daemon.lanes.stream_totals import StreamTotals
from emlio.wire.control import Pong

__all__ = ["StreamReports"]

_LOG = logging.getLogger("emlio.daemon")


class StreamReports:
    """Makes the reports on streams. Used by the control thread."""

    def __init__(self, sender: LaneSender, clock: Clock) -> None:
        self._sender = sender
        self._clock = clock

    def pong(self, client: Client, nonce: int, heard_ns: int = 0) -> Pong:
        """Return the totals of the client's stream, if it has one, and the time, if the ping asked.

        Args:
            client: the client that gets the report.
            nonce: the ping's nonce; 0 if there was no ping.
            heard_ns: the time at which the ping came out of the socket.
        """
        totals = self._sender.totals(client.stream) if client.stream is not None else StreamTotals()
        return Pong(
            nonce=nonce,
            sent_bytes=totals.sent_bytes,
            blocked_ns=totals.blocked_ns,
            starved_ns=totals.starved_ns,
            withheld_ns=totals.withheld_ns,
            heard_ns=heard_ns,
            said_ns=self._clock.monotonic_ns() if heard_ns else 0,
        )

    def all_settled(self, clients: Iterable[Client]) -> bool:
        """Return whether all ranks have read what was sent, and allow no more."""
        return all(client.stream is None or self._sender.is_settled(client.stream, client.group) for client in clients)

    def last(self, client: Client) -> Pong | None:
        """Return the total of sent bytes, so that the rank can wait for them.

        None for a client without a stream.
        """
        stream = client.stream
        if stream is None:
            return None
        sent, unread = self._sender.totals(stream).sent_bytes, self._sender.unread_bytes(client.group)
        if unread:
            _LOG.warning(
                "%s was not drained: the rank did not read %s bytes in time",
                client.label,
                f"{unread:,}",
                extra={"unread_bytes": unread, **client.facts},
            )
            sent = 0  # data in the lanes is dropped when they are closed: nothing can be promised
        else:
            _LOG.info("%s was drained: %s bytes sent", client.label, f"{sent:,}", extra={"bytes": sent, **client.facts})
        return Pong(nonce=0, sent_bytes=sent)
