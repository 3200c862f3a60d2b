"""The training side of the dialogue with an agent: one request at a time, each with a deadline.

Covers: sending and receiving over a connected socket. Does not cover: making the connection
(emlio_bench.race.storage.over_ssh, emlio_bench.race.storage.by_hand).
"""

import select
import socket
import time
from typing import Final, TypeVar

import msgspec

from emlio.errors import ClosedError, TransportError
from emlio_bench.race.storage.messages import Request, Said

__all__ = ["Dialogue"]

_Answer = TypeVar("_Answer")
_USUAL_S: Final = 60.0
_CHUNK_BYTES: Final = 65_536


class Dialogue:
    """A connection to an agent. Used by one thread."""

    def __init__(self, connection: socket.socket, *, name: str, unread: bytes = b"") -> None:
        """Take over a connection.

        Args:
            connection: the connected socket; `close` closes it.
            name: name of the storage host, for errors.
            unread: bytes of it that were read already.
        """
        self._connection = connection
        self._name = name
        self._unread = unread

    def ask(self, request: Request, kind: type[_Answer], timeout_s: float = _USUAL_S) -> _Answer:
        """Send a request and return its answer.

        Args:
            request: the request.
            kind: type of the answer.
            timeout_s: the longest time until the answer.

        Raises:
            ClosedError: the agent has gone, or says nothing in time. Nothing more can be run.
            TransportError: the agent could not do it, with its reason.
        """
        deadline = time.monotonic() + timeout_s
        try:
            self._connection.settimeout(timeout_s)
            self._connection.sendall(msgspec.json.encode(request) + b"\n")
            while b"\n" not in self._unread:
                if not select.select([self._connection], [], [], max(deadline - time.monotonic(), 0))[0]:
                    raise ClosedError(f"{self._name} must answer within {timeout_s:g} s, it did not")
                chunk = self._connection.recv(_CHUNK_BYTES)
                if not chunk:
                    raise ClosedError(self._lost("the program there has ended"))
                self._unread += chunk
        except OSError as error:
            raise ClosedError(self._lost(error.strerror or str(error))) from error
        line, _, self._unread = self._unread.partition(b"\n")
        said = _decode(line, Said, self._name)
        if said.problem is not None:
            raise TransportError(f"{self._name}: {said.problem}")
        return _decode(bytes(said.answer), kind, self._name)

    def _lost(self, why: str) -> str:
        return f"the connection to {self._name} was lost: {why}"

    def close(self) -> None:
        """Close the connection, which ends the agent and all that it started."""
        self._connection.close()


def _decode(line: bytes, kind: type[_Answer], name: str) -> _Answer:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise ClosedError(f"{name} must answer as an agent of this version does, got {line[:80]!r}: {error}") from error
