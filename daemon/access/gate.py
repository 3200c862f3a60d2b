"""The decision whether a peer may connect to the control port.

Covers: client keys. Pure. Does not cover: sockets (emlio.daemon.network.transport), lanes
(emlio.daemon.access.lane_gate), the source of the allow list (emlio.keys).
"""

from collections.abc import Callable
from typing import Final

import msgspec

__all__ = ["CONTROL_PORT_NAME", "ConnectionRequest", "Gate", "Verdict"]

CONTROL_PORT_NAME: Final = "control"


class ConnectionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's request to connect.

    Attributes:
        port: the port the peer connects to.
        address: the peer's host, as the network reports it.
        key: the public key the peer proved to have, 32 bytes; empty if it showed none.
        user: the user name the peer sent, in place of a key.
        token: the password sent with `user`.
        ticket: identifies libzmq's question, so that the answer reaches it.
    """

    port: str
    address: str
    key: bytes = b""
    user: bytes = b""
    token: bytes = b""
    ticket: tuple[bytes, bytes] = (b"", b"")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a connection request.

    Attributes:
        admitted: whether the peer may connect.
        user: the name attached to messages of this connection: the key in hexadecimal digits, or
            the lane.
        reason: the reason of a refusal, for the log; never sent to the peer.
    """

    admitted: bool
    user: str = ""
    reason: str = ""


class Gate:
    """Decides about requests at the control port. May be used by any thread."""

    def __init__(self, knows: Callable[[bytes], bool] | None) -> None:
        """See the class.

        Args:
            knows: returns whether a client's key is allowed now; None if clients need no key.
        """
        self._knows = knows

    def judge(self, request: ConnectionRequest) -> Verdict:
        """Decide about a request."""
        if self._knows is None:
            return Verdict(admitted=True)
        if not self._knows(request.key):
            return Verdict(admitted=False, reason="its key is not among the allowed clients")
        return Verdict(admitted=True, user=request.key.hex())
