"""Asking a port how connections to it are protected, or why there are none.

libzmq disconnects a peer with another mechanism, mostly before that peer has received which one was
expected. Here the port is asked without naming a mechanism: then it names its own.

Covers: one question over its own connection, without blocking. Does not cover: the meaning of the
answer (emlio.receiver.addresses.trust).
"""

import errno
import socket
import time
from typing import Final

__all__ = ["MechanismQuestion"]

_QUESTION: Final = b"\xff" + bytes(8) + b"\x7f\x03"
"""ZMTP's signature and major version, the first 11 bytes of a greeting. The mechanism would follow."""

_MECHANISM: Final = slice(12, 32)
"""The field of the answer with the mechanism, padded with zeros."""

_LONGEST_S: Final = 10.0
"""The longest wait for a port that accepts connections and says nothing."""

_KEYS: Final = "CURVE"
_LANE_PASSES: Final = "PLAIN"
_NOTHING: Final = "NULL"


class MechanismQuestion:
    """One question. Used by one thread, which calls `advance` when the descriptor is ready.

    Attributes:
        asked: whether the question has been sent. Wait until the descriptor is writable before,
            readable after.
        over: whether it was answered, or ended without an answer.
        mechanism: the answer, such as NULL or CURVE; "" if there is none.
        obstacle: why the port could not be connected to, as errno; 0 if it could, or is not known yet.
    """

    def __init__(self, host: str, port: int) -> None:
        """Begin to connect.

        Raises:
            OSError: no descriptor is left, or this host does not support the address family.
        """
        self.asked = False
        self.over = False
        self.mechanism = ""
        self.obstacle = 0
        self._heard = b""
        self._until_s = time.monotonic() + _LONGEST_S
        family, *_, place = (
            socket.getaddrinfo(  # of an address, so nothing is looked up; it keeps an IPv6 address's zone
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            )[0]
        )
        self._socket = socket.socket(family)
        try:
            self._socket.setblocking(False)
            code = self._socket.connect_ex(place)  # mostly it shows only when the question is sent whether it worked
            if code not in (0, errno.EINPROGRESS):
                self.over, self.obstacle = True, code
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    @property
    def is_open(self) -> bool:
        """Return whether an answer may still come."""
        return not self.over and time.monotonic() < self._until_s

    @property
    def asks_for_keys(self) -> bool:
        """Return whether the port asks for keys."""
        return self.mechanism == _KEYS

    @property
    def asks_for_nothing(self) -> bool:
        """Return whether the port admits every client."""
        return self.mechanism == _NOTHING

    @property
    def is_data_port(self) -> bool:
        """Return whether the port asks for a lane's pass, as a data port does."""
        return self.mechanism == _LANE_PASSES

    def advance(self) -> None:
        """Send the question, or read more of the answer."""
        try:
            if not self.asked:
                self._socket.send(_QUESTION, socket.MSG_NOSIGNAL)  # into an empty buffer: all of it fits
                self.asked = True
                return
            more = self._socket.recv(_MECHANISM.stop - len(self._heard))
        except BlockingIOError:
            return
        except OSError as error:
            self.over = True
            if not self.asked:
                self.obstacle = error.errno or 0
            return
        self._heard += more
        self.over = not more or len(self._heard) == _MECHANISM.stop
        if more and self.over and self._heard[0] == _QUESTION[0]:
            self.mechanism = self._heard[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")

    def close(self) -> None:
        """Disconnect."""
        self.over = True
        self._socket.close()
