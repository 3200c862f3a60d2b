"""Readings on request, over the recorder's Unix socket; epochs get their edges this way."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from emlio.energy.values.device import Device
from emlio.energy.values.reading import Reading
from emlio.errors import PeerLostError, RefusedError, RemoteProtocolError, TransportError

__all__ = ["HOLD", "READ", "SCHEMA", "Edge", "EdgeClient", "short_address"]

READ = b"read\n"
HOLD = b"hold\n"
_PIECE_BYTES = 65536
_MOST_ANSWER_BYTES = 1 << 20
SCHEMA = 1
_LONGEST_PATH = 107
"""The longest Unix socket address that the kernel accepts, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A reading made on request, and where it was made.

    Attributes:
        node: the node's name.
        boot: the id of the boot that its clock belongs to.
        file: the path of the recording on that node.
        number: of the recording in the file.
        devices: in the order of the reading's totals.
        reading: made between the request and the answer. It is part of the recording too.
    """

    node: str
    boot: str
    file: str
    number: int
    devices: tuple[Device, ...]
    reading: Reading


class EdgeClient:
    """A client of the recorder on this node. It must be used by one thread at a time.

    After a timeout, further requests can be made.
    """

    def __init__(self, path: Path, *, timeout_s: float = 2.0) -> None:
        """Connect.

        Raises:
            TransportError: no recorder answers there, or this user may not connect.
        """
        self._path = path
        self._owed = 0
        self._heard = bytearray()
        self._link = socket.socket(socket.AF_UNIX)
        self._link.settimeout(timeout_s)
        try:
            with short_address(path) as address:
                self._link.connect(address)
        except OSError as error:
            self._link.close()
            raise TransportError(f"cannot connect to a recorder at {path}: {error}") from error

    def read(self) -> Edge:
        """Request a reading now.

        Raises:
            PeerLostError: no answer came in time.
            RefusedError: the recorder refused.
            RemoteProtocolError: the answer is malformed.
        """
        return _edge(self._asked(READ), self._path)

    def hold(self, *, timeout_s: float | None = None) -> None:
        """Keep the recorder running while this connection is open.

        This has an effect only if the recorder was started with `while_held`.

        Args:
            timeout_s: for this answer; None for the client's usual timeout.

        Raises:
            PeerLostError: no answer came in time.
        """
        usual_s = self._link.gettimeout()
        self._link.settimeout(usual_s if timeout_s is None else timeout_s)
        try:
            self._asked(HOLD)
        finally:
            self._link.settimeout(usual_s)

    def _asked(self, question: bytes) -> bytes:
        heard = self._heard
        try:
            self._link.sendall(question)
            self._owed += 1
            while heard.count(b"\n") < self._owed:
                piece = self._link.recv(_PIECE_BYTES)
                if not piece or len(heard) > _MOST_ANSWER_BYTES:
                    raise PeerLostError(
                        f"the recorder at {self._path} closed the connection after {len(heard)} bytes of its answer"
                    )
                heard += piece
        except OSError as error:
            raise PeerLostError(f"the recorder at {self._path} does not answer: {error}") from error
        answer = heard.split(b"\n")[self._owed - 1] + b"\n"  # earlier lines answer requests that timed out
        self._heard, self._owed = bytearray(), 0
        return bytes(answer)

    def close(self) -> None:
        """Shut the connection down, also for forked processes that share it.

        Closing again does nothing.
        """
        with suppress(OSError):  # the connection has ended already
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()

    def __enter__(self) -> Self:
        """Itself, for `with`."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close."""
        self.close()


@contextmanager
def short_address(path: Path) -> Generator[str]:
    """Yield an address for the socket that the kernel accepts.

    If the path is too long, the address uses a descriptor of its folder.
    """
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _edge(line: bytes, path: Path) -> Edge:
    try:
        document: dict[str, Any] = msgspec.json.decode(line)
        if "error" in document:
            raise RefusedError(f"the recorder at {path} answered: {document['text']}", code=str(document["error"]))
        if document["schema"] != SCHEMA:
            raise ValueError(f"version {document['schema']}")
        return msgspec.convert(document, Edge)
    except RefusedError:
        raise
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(
            f"the recorder at {path} must answer with a reading of version {SCHEMA}: {error!r}"
        ) from error
