"""A reading at the moment somebody asks for it: the edges of epochs, over a Unix socket.

Covers: question and answer, a recorder that is held, the socket's file and who may open it, asking. Does not cover: serving
connections (emlio.energy.doors), reading (emlio.energy.recorder).
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

from emlio.energy.counter import Event
from emlio.energy.device import Device
from emlio.energy.domain import Domain, Method
from emlio.energy.doors import Answer
from emlio.energy.reading import Reading
from emlio.energy.run import Run
from emlio.errors import ConfigError, EmlioError, PeerLostError, RefusedError, RemoteProtocolError, TransportError

__all__ = ["Edge", "EdgeClient", "EdgeDesk", "listen"]

_QUESTION = b"read\n"
_HOLD = b"hold\n"
_PIECE_BYTES = 65536
_MOST_ANSWER_BYTES = 1 << 20
_VERSION = 1
_LONGEST_PATH = 107
"""Bytes that the kernel takes as the address of a Unix socket."""

_MOST_AT_ONCE = 64
"""Who connects while so many wait is turned away by the kernel: more than a node has ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An answer.

    Attributes:
        node: where it was read.
        boot: which start of that node its clock belongs to.
        file: where the recording lies on that node.
        number: of the recording in the file.
        devices: in the order of the reading's totals.
        reading: made between the question and the answer. It is in the recording too.
    """

    node: str
    boot: str
    file: str
    number: int
    devices: tuple[Device, ...]
    reading: Reading


class EdgeDesk:
    """Answers for a recorder."""

    def __init__(self, run: Run, *, file: Path, number: int, read: Callable[[], Reading | None]) -> None:
        """Answer with these.

        Args:
            run: the recording.
            file: where it lies.
            number: its number there.
            read: reads now; None where that was asked too often.
        """
        self._read = read
        devices = [asdict(device) for device in run.devices]
        about: dict[str, Any] = {"schema": _VERSION, "node": run.node, "boot": run.boot, "file": str(file)}
        self._about = {**about, "number": number, "devices": devices}

    def answer(self, heard: bytes) -> Answer | None:
        """As `emlio.energy.doors.Doors.open` wants it."""
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
            refused = {"schema": _VERSION, "error": "too-often", "text": "must be asked less often"}
            return Answer(reply=_line(refused), rest=rest)
        return Answer(reply=_line({**self._about, "reading": asdict(reading)}), rest=rest)


class EdgeClient:
    """Asks a recorder on this node. One thread at a time uses it. After an answer that was late it can be asked again."""

    def __init__(self, path: Path, *, timeout_s: float = 2.0) -> None:
        """Connect.

        Raises:
            TransportError: nobody answers there, or this user may not ask.
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
            raise TransportError(f"a recorder must answer at {path}: {error}") from error

    def read(self) -> Edge:
        """Have everything read now.

        Raises:
            PeerLostError: no answer came in time.
            RefusedError: the recorder said no.
            RemoteProtocolError: the answer is none.
        """
        return _edge(self._asked(_QUESTION), self._path)

    def hold(self, *, timeout_s: float | None = None) -> None:
        """Have the recorder go on for as long as this connection is there, if it was told to heed that.

        Args:
            timeout_s: how long it may take to answer this; None for as long as anything else.

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
                    raise PeerLostError(f"the recorder at {self._path} must answer, it went after {len(heard)} bytes")
                heard += piece
        except OSError as error:
            raise PeerLostError(f"the recorder at {self._path} must answer: {error}") from error
        answer = heard.split(b"\n")[self._owed - 1] + b"\n"  # those before it are to questions given up since
        self._heard, self._owed = bytearray(), 0
        return bytes(answer)

    def close(self) -> None:
        """End the connection, also where a forked process has it too. Closing again does nothing."""
        with suppress(OSError):  # it has ended already
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
    """A Unix socket for this user alone, or for a group too.

    What a recorder that was killed left at the path is taken away.

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
        raise ConfigError(f"a socket must be made at {path}: {error}") from error
    except BaseException:
        listener.close()
        raise
    return listener


def _clear(path: Path) -> None:
    """Take away a socket that nobody listens at; refuse anything else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"a socket must be made at {path}, where something else lies")
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        try:
            with _short(path) as address:
                link.connect(address)
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ConfigError(f"a socket must be made at {path}, where another recorder answers")


@contextmanager
def _short(path: Path) -> Generator[str]:
    """A way to a socket that is not longer than the kernel takes: if need be by a descriptor of its folder."""
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
            raise RefusedError(f"the recorder at {path} said: {document['text']}", code=str(document["error"]))
        if document["schema"] != _VERSION:
            raise ValueError(f"version {document['schema']}")
        return Edge(
            node=str(document["node"]),
            boot=str(document["boot"]),
            file=str(document["file"]),
            number=int(document["number"]),
            devices=tuple(_device(one) for one in document["devices"]),
            reading=_reading(document["reading"]),
        )
    except RefusedError:
        raise
    except (EmlioError, KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(
            f"the recorder at {path} must answer with a reading of version {_VERSION}: {error!r}"
        ) from error


def _device(document: dict[str, Any]) -> Device:
    fields: dict[str, Any] = dict(document)
    fields.update(domain=Domain(document["domain"]), method=Method(document["method"]))
    return Device(**fields)


def _reading(document: dict[str, Any]) -> Reading:
    fields: dict[str, Any] = dict(document)
    fields.update(totals=tuple(document["totals"]), events=tuple(Event(one) for one in document["events"]))
    return Reading(**fields)
