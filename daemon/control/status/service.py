"""Answers to status requests: within the limits, and only with what the client may see.

Covers: putting limits, permissions and the report together. Does not cover: the report
(emlio.daemon.control.status.report).
"""

from collections.abc import Callable, Collection
from contextlib import suppress

from emlio.clock import Clock
from emlio.daemon.access.permissions import Permissions
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.answers import Identity
from emlio.daemon.control.client import Client
from emlio.daemon.control.status.quota import StatusQuota
from emlio.daemon.control.status.report import DaemonFigures, StatusReport
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.failures import Failures
from emlio.daemon.network.transport import ControlSocket, Received, Sent
from emlio.daemon.streams import Streams
from emlio.errors import RemoteProtocolError
from emlio.wire.control import Refused, StatusRequest, decode_control, encode_control

__all__ = ["StatusService"]

_BUSY = "too many status requests from this client, or its last answer is not read yet. Retry later"


class StatusService:
    """Answers status requests. Used by the control thread.

    Attributes:
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
        self._report = StatusReport(
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

        reply = self._report.reply(request.nonce, clients, may_read, draining=self._admission.is_draining)
        self._quota.sent(owner, send(received.connection, encode_control(reply)))

    def figures(self, clients: Collection[Client], *, begun: int) -> DaemonFigures:
        """Return the figures for metrics.

        Args:
            clients: all sessions.
            begun: the number of sessions since the start.
        """
        return self._report.figures(clients, begun=begun, draining=self._admission.is_draining)
