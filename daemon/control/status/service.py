"""Answers to status requests: within the limits, and only with what the client may see.

Covers: putting limits, permissions and the report together. Does not cover: the report
(emlio.daemon.control.status.report).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from contextlib import suppress

import msgspec

from emlio.clock import Clock
from emlio.daemon.access.permissions import Permissions
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.answers import Identity
from emlio.daemon.control.client import Client
from emlio.daemon.control.status.report import StatusReport
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.failures import Failures
from emlio.daemon.limits import MOST_STATUS_AT_ONCE, MOST_STATUS_UNDER_WAY, STATUS_EVERY_NS
from emlio.daemon.network.transport import ControlSocket, Received, Sent
from emlio.daemon.streams import Streams
from emlio.errors import RemoteProtocolError
from emlio.wire.control import Refused, StatusRequest, decode_control, encode_control

__all__ = ["StatusQuota", "StatusService"]

_BUSY = "too many status requests from this client, or its last answer is not read yet. Retry later"


_MOST_CLIENTS = 1024
"""Clients that are remembered; a client that asks after so many others begins anew."""


class _Client(msgspec.Struct):
    free_ns: int = 0  # the requests so far are paid for at this time
    sent: deque[Sent] = msgspec.field(default_factory=deque[Sent])


class StatusQuota:
    """Decides which requests are answered. Used by the control thread."""

    def __init__(self) -> None:
        self._clients: OrderedDict[bytes, _Client] = OrderedDict()
        self._sent: deque[Sent] = deque()

    def take(self, owner: bytes, now_ns: int) -> bool:
        """Count a request of this client; return whether it is answered."""
        client = self._clients.pop(owner, None) or _Client()
        self._clients[owner] = client
        while len(self._clients) > _MOST_CLIENTS:
            self._clients.popitem(last=False)
        self._sent = _under_way(self._sent)
        client.sent = _under_way(client.sent)
        at_once_ns = (MOST_STATUS_AT_ONCE - 1) * STATUS_EVERY_NS
        if client.free_ns - now_ns > at_once_ns or client.sent or len(self._sent) >= MOST_STATUS_UNDER_WAY:
            return False
        client.free_ns = max(client.free_ns, now_ns) + STATUS_EVERY_NS
        return True

    def sent(self, owner: bytes, sent: Sent) -> None:
        """Note an answer, which takes memory until the client has read it."""
        if sent.under_way and (client := self._clients.get(owner)) is not None:
            client.sent.append(sent)
            self._sent.append(sent)


def _under_way(answers: deque[Sent]) -> deque[Sent]:
    return deque(one for one in answers if one.under_way)


class StatusService:
    """Answers status requests. Used by the control thread.

    Attributes:
        report: makes the replies, and the figures for metrics.
        local: the socket for this host's root and this daemon's user, if there is one.
    """

    def __init__(
        self,
        config: DaemonConfig,
        datasets: Datasets,
        permissions: Permissions,
        admission: Admission,
        streams: Streams,
        identity: Identity,
        failures: Failures,
        clock: Clock,
    ) -> None:
        self._admission = admission
        self.local: ControlSocket | None = None
        self.report = StatusReport(
            datasets.generations,
            streams,
            identity,
            failures,
            clock,
            heartbeat_timeout_ns=config.heartbeat_timeout,
        )
        self._permissions = permissions
        self._quota = StatusQuota()
        self._clock = clock

    def hear(self, clients: Collection[Client]) -> None:
        """Answer the requests at the local socket; other messages are dropped."""
        while self.local is not None and (received := self.local.receive()) is not None:
            with suppress(RemoteProtocolError):
                message = decode_control(received.data)
                if isinstance(message, StatusRequest):
                    self.answer(message, received, clients, self.local.send)

    def close(self) -> None:
        """Close the local socket."""
        if self.local is not None:
            self.local.close()

    def answer(
        self,
        request: StatusRequest,
        received: Received,
        clients: Collection[Client],
        send: Callable[[bytes, bytes], Sent],
    ) -> None:
        """Send the answer.

        Args:
            request: the request.
            received: how it came: its key decides what the client may see; over the local socket, everything.
            clients: all sessions.
            send: sends bytes over a connection.
        """
        owner = b"local" if received.is_local else received.key or received.address.encode()
        if not self._quota.take(owner, self._clock.monotonic_ns()):
            send(received.connection, encode_control(Refused(code="no-session", text=_BUSY)))
            return

        def may_read(dataset: str) -> bool:
            return received.is_local or self._permissions.may_read(received.key, dataset)

        reply = self.report.reply(request.nonce, clients, may_read, draining=self._admission.is_draining)
        self._quota.sent(owner, send(received.connection, encode_control(reply)))
