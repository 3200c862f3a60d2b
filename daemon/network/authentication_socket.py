"""The socket on which libzmq asks whether a peer may connect (ZeroMQ's RFC 27).

Covers: questions and answers, in any order. Does not cover: the decision (emlio.daemon.access.gate,
emlio.daemon.access.lane_gate), the thread (emlio.daemon.network.zap_thread).
"""

import msgspec
import zmq

from emlio.daemon.access.gate import ConnectionRequest, Verdict

__all__ = ["AuthenticationSocket"]


class AuthenticationSocket:
    """The bound ROUTER. Used by one thread only."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.socket = socket

    def receive(self) -> ConnectionRequest | None:
        """Return the next question; None if there is none.

        Each must be answered once, now or later.
        """
        try:
            frames = self.socket.recv_multipart(zmq.DONTWAIT)
        except zmq.Again:
            return None
        asker, _, _, number, port, address, _, *shown = frames
        request = ConnectionRequest(
            port=port.decode("ascii", "replace"), address=address.decode("ascii", "replace"), ticket=(asker, number)
        )
        match shown:
            case b"CURVE", key if len(key) == 32:  # the length of every key
                return msgspec.structs.replace(request, key=key)
            case b"PLAIN", user, token:
                return msgspec.structs.replace(request, user=user, token=token)
            case _:
                return request

    def answer(self, request: ConnectionRequest, verdict: Verdict) -> None:
        """Answer the question. If the peer has gone meanwhile, the answer is dropped."""
        asker, number = request.ticket
        code, text = (b"200", b"OK") if verdict.admitted else (b"400", b"not admitted")
        self.socket.send_multipart((asker, b"", b"1.0", number, code, text, verdict.user.encode("ascii"), b""))

    def close(self) -> None:
        """Close the socket."""
        self.socket.close(linger=0)
