"""The limits on status requests, which any client may send without a session.

Covers: the rate for each client, answers under way. Does not cover: the answers
(emlio.daemon.control.status.report), the time that reading messages takes
(emlio.daemon.control.thread).
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from emlio.daemon.limits import MOST_STATUS_AT_ONCE, MOST_STATUS_UNDER_WAY, STATUS_EVERY_NS
from emlio.daemon.network.transport import Sent

__all__ = ["StatusQuota"]

_MOST_CLIENTS = 1024
"""Clients that are remembered; a client that asks after so many others begins anew."""


@dataclass(slots=True)
class _Client:
    free_ns: int = 0  # the requests so far are paid for at this time
    sent: deque[Sent] = field(default_factory=deque[Sent])


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
