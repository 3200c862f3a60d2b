"""Readings on request, over a Unix socket; epochs get their edges this way.

Covers: request and answer, holding a recorder, the socket's file and its permissions, the client.
Does not cover: serving connections (emlio.metrics.socket_waiter), reading
(emlio.energy.recording.recorder).
"""

import json
import os
import socket
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from emlio.energy.values.device import Device
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.errors import ConfigError, PeerLostError, RefusedError, RemoteProtocolError, TransportError
from emlio.metrics.socket_waiter import Answer

__all__ = ["Edge", "EdgeClient", "InstantReadings", "listen"]

_QUESTION = b"read\n"
_HOLD = b"hold\n"
_PIECE_BYTES = 65536
_MOST_ANSWER_BYTES = 1 << 20
_VERSION = 1
_LONGEST_PATH = 107
"""The longest Unix socket address that the kernel accepts, in bytes."""

_MOST_AT_ONCE = 64
"""The listen backlog; more than a node has ranks. The kernel refuses further connections."""


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


class InstantReadings:
    """The answering side of requests for readings."""

    def __init__(self, run: Run, *, file: Path, number: int, read: Callable[[], Reading | None]) -> None:
        """Create the answering side for one recording.

        Args:
            run: the recording.
            file: its file.
            number: its number in the file.
            read: makes a reading now; returns None if it was called too often.
        """
        self._read = read
        devices = [asdict(device) for device in run.devices]
        about: dict[str, Any] = {"schema": _VERSION, "node": run.node, "boot": run.boot, "file": str(file)}
        self._about = {**about, "number": number, "devices": devices}

    def answer(self, heard: bytes) -> Answer | None:
        """Answer a request, as `SocketWaiter.open` requires."""
        question, end, rest = heard.partition(b"\n")
        if not end:
            return None
        if question + end == _HOLD:
            return Answer(reply=_line({"schema": _VERSION, "held": True}), rest=rest, holds=True)
        if question + end != _QUESTION:
            unknown = {"schema": _VERSION, "error": "unknown", "text": "must be the word 'read' or 'hold'"}
            return Answer(reply=_line(unknown), rest=None)
        reading = self._read()
        if reading is None:
            refused = {"schema": _VERSION, "error": "too-often", "text": "too many requests, ask less often"}
            return Answer(reply=_line(refused), rest=rest)
        return Answer(reply=_line({**self._about, "reading": asdict(reading)}), rest=rest)


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
            with _short(path) as address:
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
        return _edge(self._asked(_QUESTION), self._path)

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
            self._asked(_HOLD)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def listen(path: Path, *, group: int | None = None) -> socket.socket:
    """Return a listening Unix socket for this user, or also for a group.

    A socket that a killed recorder left at the path is removed.

    Raises:
        ConfigError: the path is taken, or cannot be used.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        _clear(path)
        before = os.umask(0o177)
        try:
            with _short(path) as address:
                listener.bind(address)
        finally:
            os.umask(before)
        if group is not None:
            os.chown(path, -1, group)
            path.chmod(0o660)
        listener.listen(_MOST_AT_ONCE)
    except OSError as error:
        listener.close()
        raise ConfigError(f"the socket {path} cannot be created: {error}") from error
    except BaseException:
        listener.close()
        raise
    return listener


def _clear(path: Path) -> None:
    """Remove a socket on which no process listens; refuse anything else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"the socket {path} cannot be created: a file of another kind exists there")
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        try:
            with _short(path) as address:
                link.connect(address)
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ConfigError(f"the socket {path} cannot be created: another recorder already uses it")


@contextmanager
def _short(path: Path) -> Generator[str]:
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


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _edge(line: bytes, path: Path) -> Edge:
    try:
        document: dict[str, Any] = json.loads(line)
        if "error" in document:
            raise RefusedError(f"the recorder at {path} answered: {document['text']}", code=str(document["error"]))
        if document["schema"] != _VERSION:
            raise ValueError(f"version {document['schema']}")
        return Edge(
            node=str(document["node"]),
            boot=str(document["boot"]),
            file=str(document["file"]),
            number=int(document["number"]),
            devices=msgspec.convert(document["devices"], tuple[Device, ...]),
            reading=msgspec.convert(document["reading"], Reading),
        )
    except RefusedError:
        raise
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(
            f"the recorder at {path} must answer with a reading of version {_VERSION}: {error!r}"
        ) from error
