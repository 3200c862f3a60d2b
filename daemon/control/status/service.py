"""Answers to status requests: within the limits, and only with what the client may see.

Covers: putting limits, permissions and the report together. Does not cover: the report
(emlio.daemon.control.status.report), sending (emlio.daemon.control.thread).
"""

from collections.abc import Collection
from functools import partial

from emlio.clock import Clock
from emlio.daemon.access.permissions import Permissions
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.answers import Identity
from emlio.daemon.control.client import Client
from emlio.daemon.control.status.quota import StatusQuota
from emlio.daemon.control.status.report import StatusReport
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.failures import Failures
from emlio.daemon.network.transport import Received, Sent
from emlio.daemon.streams import Streams
from emlio.wire.control import Refused, StatusReply, StatusRequest

__all__ = ["StatusService"]

_BUSY = "too many status requests from this client, or its last answer is not read yet. Retry later"


class StatusService:
    """Answers status requests. Used by the control thread.

    Attributes:
        report: makes the answers.
    """

    def __init__(
        self,
        config: DaemonConfig,
        datasets: Datasets,
        permissions: Permissions,
        streams: Streams,
        identity: Identity,
        failures: Failures,
        clock: Clock,
    ) -> None:
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

    def answer(
        self, request: StatusRequest, received: Received, clients: Collection[Client], *, draining: bool
    ) -> StatusReply | Refused:
        """Return the answer.

        Args:
            request: the request.
            received: how it came: its key decides what the client may see.
            clients: all sessions.
            draining: whether the daemon takes no new sessions.
        """
        if not self._quota.take(_owner(received), self._clock.monotonic_ns()):
            return Refused(code="no-session", text=_BUSY)
        may_read = partial(self._permissions.may_read, received.key)
        return self.report.reply(request.nonce, clients, may_read, draining=draining)

    def sent(self, received: Received, sent: Sent) -> None:
        """Note that the answer is under way."""
        self._quota.sent(_owner(received), sent)


def _owner(received: Received) -> bytes:
    return received.key or received.address.encode()
