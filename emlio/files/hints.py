"""Telling a mount, from another process, in which order its files will be read: `hint`, and the socket that hears it.

The socket answers a message without anything with what the mount does: `ask_mounts`.

Each mount listens at a Unix socket in a folder that only its user can enter; the socket's name follows from where it is mounted.
"""

import hashlib
import logging
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Final, Self

from emlio.errors import ConfigError
from emlio.thread_name import show_thread_name

__all__ = ["SOCKETS_VARIABLE", "HintListener", "ask_mounts", "hint", "socket_folder"]

_log = logging.getLogger(__name__)

SOCKETS_VARIABLE: Final = "EMLIO_FILES_SOCKETS"
"""Names the folder of the sockets; `emlio run` sets it for its command."""

_MOST_BYTES: Final = 1 << 30
_CHUNK_BYTES: Final = 1 << 20
_SILENT_S: Final = 30.0
_ANSWER_S: Final = 600.0
"""An order of millions of files takes seconds to look up and to list."""


def hint(paths: Iterable[str | bytes | PathLike[str]], *, name: str = "") -> int:
    """Tell mounts in which order their files will be read from now on.

    Call it in the process that knows the order, such as a training process when an epoch begins. A wrong order costs
    speed, never a wrong byte; without a mount nothing happens.

    Args:
        paths: as the program will open them. One that occurs twice is read twice.
        name: of the order, if this process has several: training and validation, say. An order replaces the one of the
            same name of this process in the same mount, and those of processes that have ended.

    Returns:
        How many are no files of a mount that was told.
    """
    if isinstance(paths, str | bytes | PathLike):
        raise ConfigError(f"paths must be several, in the order in which they are read, got the single one {paths!r}")
    folder = socket_folder(os.environ)
    is_own = _is_own(folder)  # in a shared /tmp another user may have made it
    places: dict[bytes, tuple[Path, bytes] | None] = {}
    told: dict[Path, list[bytes]] = {}
    unknown = 0
    for path in paths:
        head, _, last = os.path.abspath(os.fsencode(path)).rpartition(b"/")
        if head not in places:
            places[head] = _mount_of(folder, os.path.realpath(head)) if is_own else None
        place = places[head]
        if place is None:
            unknown += 1
        else:
            told.setdefault(place[0], []).append(place[1] + last)
    return unknown + sum(_tell(where, name, inside) for where, inside in told.items())


def _mount_of(folder: Path, directory: bytes) -> tuple[Path, bytes] | None:
    """Return the socket of the mount that a folder is in, and the folder's path there, with a / at its end if it has one."""
    parts = directory.strip(b"/").split(b"/")
    for depth in range(len(parts), 0, -1):
        where = folder / _socket_name(b"/" + b"/".join(parts[:depth]))
        if where.exists():
            return where, b"".join(part + b"/" for part in parts[depth:])
    return None


def _tell(where: Path, name: str, inside: Sequence[bytes]) -> int:
    answer = _send(where, b"\0".join((name.encode().replace(b"\0", b""), *inside)), _ANSWER_S)
    return int(answer) if answer.isdigit() else len(inside)


def ask_mounts(directory: str | None = None) -> list[bytes]:
    """Return what each mount of this user does, or only the one at a directory, as the agent tells it; none if it is gone."""
    folder = socket_folder(os.environ)
    if not _is_own(folder):
        return []
    if directory is not None:
        found = [folder / _socket_name(os.fsencode(os.path.realpath(directory)))]
    else:
        found = sorted(folder.iterdir())
    return [answer for where in found if (answer := _send(where, b"", _SILENT_S))]


def _send(where: Path, message: bytes, patience_s: float) -> bytes:
    """Return an agent's answer; nothing if it is gone, and its mount with it."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(patience_s)
            with _short_path(where) as path:
                link.connect(path)
            link.sendall(message)
            link.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: link.recv(_CHUNK_BYTES), b""))
    except OSError:
        return b""


@contextmanager
def _short_path(where: Path) -> Generator[str]:
    """Yield a path of a socket that fits into its address, which takes 107 bytes, however long the folder's path is."""
    folder = os.open(where.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{where.name}"
    finally:
        os.close(folder)


def _is_own(folder: Path) -> bool:
    """Return whether a folder is this user's alone."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _socket_name(directory: bytes) -> str:
    return hashlib.blake2b(directory, digest_size=12).hexdigest()


def socket_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the sockets of this user's mounts."""
    given = environment.get(SOCKETS_VARIABLE) or environment.get("XDG_RUNTIME_DIR", "")
    if os.path.isdir(given):
        return Path(given) if SOCKETS_VARIABLE in environment else Path(given, "emlio")
    return Path(tempfile.gettempdir(), f"emlio-{os.getuid()}")


class HintListener:
    """The socket of one mount, and the thread that hears it, until `close`."""

    def __init__(
        self, directory: str, folder: Path, take: Callable[[str, Sequence[bytes]], int], figures: Callable[[], bytes]
    ) -> None:
        """Listen.

        Args:
            directory: where the mount is, without links.
            folder: of the sockets; is made if it is not there.
            take: gets the owner and name of an order, and paths; returns how many are no files.
            figures: returns what the mount does.

        Raises:
            ConfigError: the folder is not this user's alone.
            OSError: the socket cannot be made.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_own(folder):
            raise ConfigError(f"the folder of sockets {folder} must belong to this user, with mode 0700. Remove it")
        self._where = folder / _socket_name(os.fsencode(directory))
        self._take, self._figures = take, figures
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            with suppress(FileNotFoundError):
                self._where.unlink()  # of an agent that was killed
            with _short_path(self._where) as path:
                self._socket.bind(path)
            self._socket.listen()
            self._inode = self._where.lstat().st_ino
        except BaseException:
            self._socket.close()
            raise
        self._thread = Thread(target=self._listen, name="emlio-hints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more. A second call does nothing."""
        if self._socket.fileno() < 0:
            return
        with suppress(OSError):
            if self._where.lstat().st_ino == self._inode:  # not that of another mount at this directory
                self._where.unlink()
        self._socket.shutdown(socket.SHUT_RDWR)  # which ends accept
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listen(self) -> None:
        show_thread_name()
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            # In a thread: a program may be stopped while it tells its order.
            Thread(target=self._hear, args=(link,), name="emlio-hint", daemon=True).start()

    def _hear(self, link: socket.socket) -> None:
        with link:
            try:
                self._answer(link)
            except Exception as error:  # noqa: BLE001  # of a peer: the next one may be right
                _log.warning("an order of files was not understood: %s", error)

    def _answer(self, link: socket.socket) -> None:
        link.settimeout(_SILENT_S)
        heard = bytearray()
        while more := link.recv(_CHUNK_BYTES):
            heard += more
            if len(heard) > _MOST_BYTES:
                raise ConfigError(f"it must have at most {_MOST_BYTES} bytes")
        if not heard:
            link.sendall(self._figures())
            return
        name, *paths = bytes(heard).split(b"\0")
        pid = int.from_bytes(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)
        link.sendall(b"%d" % self._take(f"{pid} {os.fsdecode(name)}", paths))
