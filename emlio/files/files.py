"""`Files`, the files below a dataset's folder, read over the network.

Covers: the public methods, cutting what is wanted into questions, many of which are under way. Does not cover: the connection
(emlio.receiver.process_connection), asking daemons (emlio.receiver.engine.file_questions), looking up (emlio.store.tree).
"""

import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from emlio.arguments import suggests_arguments
from emlio.errors import ConfigError, DatasetError, FileError, PeerLostError
from emlio.files.connections import Connections, Load
from emlio.receiver.addresses.address import Address
from emlio.receiver.addresses.security import Security
from emlio.receiver.engine.file_questions import RangesQuestion
from emlio.receiver.process_connection import ProcessConnection
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.threads.interrupts import raises_interrupts
from emlio.receiver.threads.promise import Promise
from emlio.session.questions import RANGE
from emlio.store.folder import Kind
from emlio.store.tree import Tree
from emlio.units import counted, format_duration
from emlio.wire.limits import MOST_RANGE_QUESTIONS, RANGES_PER_REQUEST, RECORD_BYTES_PER_REPLY

__all__ = ["Files"]

Path = str | bytes | PathLike[str]
Request = Path | tuple[Path | int, int, int]

_GRACE_S = 1.0
"""Daemons may be away for the same timeout. Then that is the error, since it says more."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A range of a file that there is; none of it may be left behind the file's end."""

    path: Path | int
    file: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question for pieces of these lengths, over one of the connections."""

    lengths: list[int]
    load: Load
    question: RangesQuestion
    promise: Promise


@suggests_arguments
class Files:
    """All files below the folder of a dataset, whatever its format, as they were when the daemon listed them.

    Read-only and thread-safe. A process connects when it first needs the tree; what is pickled is the address and the
    options. A file that has changed since it was listed is an error (a `FileError` with EIO), never other bytes.
    """

    def __init__(
        self,
        address: "str | os.PathLike[str]",
        *,
        recovery: Recovery = Recovery(),
        security: Security = Security(),
    ) -> None:
        """Check the arguments; nothing is connected yet.

        Args:
            address: emlio://HOST:PORT[,HOST:PORT...]/DATASET. Of several daemons the first that is there lists the files,
                and those whose folders have the same tree take over from it.
            recovery: timeouts. A read waits for so long for a daemon that is away.
            security: keys and encryption.
        """
        parsed = Address.parse(address)
        if not parsed.peers:
            raise ConfigError(f"Files reads from a daemon, emlio://HOST:PORT/DATASET, got {str(address)!r}")
        self._timeout_ns = recovery.timeout_ns
        self._connections = Connections(
            ProcessConnection(parsed, recovery, security, kind="Files", noun="the files are")
        )
        self._connection = self._connections.first
        self._tree: Tree | None = None
        self._digest = b""

    @property
    def tree(self) -> Tree:
        """All entries, listed once.

        Raises:
            RefusedError: the daemon does not list this dataset's files.
            PeerLostError: no daemon is there.
        """
        return self._tree or self._listed()

    @raises_interrupts
    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """Return bytes of a file, from `offset` on: `length`, by default all; fewer at the file's end.

        Raises:
            FileError: there is no such file (ENOENT and others), or it has changed (EIO).
            PeerLostError: no daemon answered in time.
        """
        return self.read_many(
            [path if length is None and not offset else (path, offset, 1 << 62 if length is None else length)]
        )[0]

    @raises_interrupts
    def read_many(self, requests: Iterable[Request]) -> list[bytes]:
        """Return what `read` returns for each path, or (path, offset, length), with many requests under way at once.

        In place of a path there may be an entry's number.

        Raises:
            FileError: one cannot be read.
            PeerLostError: no daemon answered in time.
        """
        found: list[bytes] = []
        for one in self.read_each(requests):
            if isinstance(one, FileError):
                raise one
            found.append(one)
        return found

    def read_each(self, requests: Iterable[Request]) -> "Iterator[bytes | FileError]":
        """Yield what `read_many` returns, in order, or the error of a file that cannot be read; the others are read."""
        tree, folders, left = self.tree, dict[bytes, int](), iter(requests)
        found: deque[_Found | FileError] = deque()

        def pieces() -> Iterator[npt.NDArray[np.void]]:
            """Look up as many as fill a question, while those before are under way."""
            while some := [_find(tree, request, folders) for request in islice(left, RANGES_PER_REQUEST)]:
                found.extend(some)
                yield _cut(some)

        answers = self._answers(tree, pieces())
        for first in answers:
            one = found.popleft()
            if isinstance(one, FileError):
                yield one
            else:
                more = range(RECORD_BYTES_PER_REPLY, one.length, RECORD_BYTES_PER_REPLY)
                yield _joined(tree, one, [first, *(next(answers) for _ in more)])

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _listed(self) -> Tree:
        with self._connection.lock():
            if self._tree is not None:
                return self._tree
            question, promise = self._connection.connected().shell.engine.questions.tree()
            try:
                while True:
                    try:
                        promise.result(self._timeout_ns / 1e9 + _GRACE_S)
                        break
                    except TimeoutError:
                        if not question.is_asked:
                            raise self._lost("the list of files") from None
                        # The daemon is there, and looks at all files.
            finally:
                promise.cancel()
            tree = question.tree
            assert tree is not None  # or there was an error
            if self._digest not in (b"", tree.digest):
                raise DatasetError(
                    f"{self._connection.address} must have the files that it had when this Files was made. Make a new one"
                )
            self._tree, self._digest = tree, tree.digest
            return tree

    def _answers(self, tree: Tree, arrays: Iterator[npt.NDArray[np.void]]) -> "Iterator[bytes | str]":
        """Yield the bytes of each piece, or why it cannot be read; those of no length are not asked for."""
        asked: deque[_Asked] = deque()
        parts = (part for array in arrays for part in _that_fit(array))
        try:
            while True:
                while len(asked) < MOST_RANGE_QUESTIONS and (part := next(parts, None)) is not None:
                    asked.append(self._ask(tree, part["length"].tolist(), part[part["length"] > 0]))
                if not asked:
                    return
                try:
                    asked[0].promise.result(self._timeout_ns / 1e9 + _GRACE_S)
                except TimeoutError:
                    raise self._lost("a part of a file") from None
                one = asked.popleft()
                self._connections.end(one.load, sum(one.lengths))
                results = iter(one.question.results())
                for length in one.lengths:
                    yield next(results) if length else b""
        finally:
            for one in asked:
                one.promise.cancel()  # after an interrupt no caller waits for it
                self._connections.end(one.load, sum(one.lengths))

    def _ask(self, tree: Tree, lengths: list[int], wanted: npt.NDArray[np.void]) -> "_Asked":
        load = self._connections.begin(sum(lengths))
        questions = load.connection.connected().shell.engine.questions
        return _Asked(lengths, load, *questions.ranges(tree.digest, wanted))

    def _lost(self, what: str) -> PeerLostError:
        return PeerLostError(
            f"{what} did not arrive within {format_duration(self._timeout_ns)}. Check that the daemon at "
            f"{self._connection.address} is running"
        )

    def close(self) -> None:
        """End this process's connections. A second call does nothing."""
        self._connections.close()

    def __repr__(self) -> str:
        """Return the address, and how many entries there are. Never waits."""
        known = "closed" if self._connection.is_closed else "not listed"
        if self._tree is not None and not self._connection.is_closed:
            known = counted(len(self._tree) - 1, "entry", "entries")
        return f"<Files {self._connection.address}, {known}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to connect by itself; it lists the files again, which must be the same."""
        return {**self.__dict__, "_tree": None}


def _find(tree: Tree, request: Request, folders: dict[bytes, int]) -> _Found | FileError:
    """Return what a request means, or the error of its path; `folders` are those that were looked up before."""
    path, offset, length = request if isinstance(request, tuple) else (request, 0, 1 << 62)
    if offset < 0 or length < 0:
        raise ConfigError(f"offset and length must be at least 0, got {offset} and {length}")
    try:
        file = path if isinstance(path, int) else _number(tree, os.fsencode(path), folders)
    except FileError as error:
        return _failed(_shown(tree, path), os.strerror(error.errno or errno.EIO), error.errno or errno.EIO, offset)
    if tree.kind(file) is not Kind.FILE:
        return _failed(_shown(tree, path), os.strerror(errno.EISDIR), errno.EISDIR, offset)
    size = int(tree.sizes[file])
    return _Found(path, file, min(offset, size), min(length, max(size - offset, 0)))


def _number(tree: Tree, path: bytes, folders: dict[bytes, int]) -> int:
    head, _, name = path.rpartition(b"/")
    folder = folders.get(head)
    if folder is None:
        folder = folders[head] = tree.folder(head)
    return tree.lookup(name, start=folder)


def _cut(found: "Sequence[_Found | FileError]") -> npt.NDArray[np.void]:
    """Return what is wanted in pieces of which one fits an answer; one of no length for what needs none."""
    rows = [(one.file, one.offset, one.length) if isinstance(one, _Found) else (0, 0, 0) for one in found]
    files, offsets, lengths = np.array(rows, np.int64).T
    counts = np.maximum(-(-lengths // RECORD_BYTES_PER_REPLY), 1)
    which = np.repeat(np.arange(len(found)), counts)
    behind = (np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)) * RECORD_BYTES_PER_REPLY
    pieces = np.empty(len(which), RANGE)
    pieces["file"] = files[which]
    pieces["offset"] = offsets[which] + behind
    pieces["length"] = np.minimum(lengths[which] - behind, RECORD_BYTES_PER_REPLY)
    return pieces


def _that_fit(pieces: npt.NDArray[np.void]) -> "Iterator[npt.NDArray[np.void]]":
    """Yield pieces in parts of which each fits a question and its answer."""
    ends = np.cumsum(pieces["length"], dtype=np.int64)
    begin = 0
    while begin < len(pieces):
        before = int(ends[begin - 1]) if begin else 0
        full = int(np.searchsorted(ends, before + RECORD_BYTES_PER_REPLY, side="right"))
        end = min(full, begin + RANGES_PER_REQUEST)
        yield pieces[begin:end]
        begin = end


def _joined(tree: Tree, found: _Found, parts: "list[bytes | str]") -> bytes | FileError:
    good = [part for part in parts if isinstance(part, bytes)]
    for part in parts:
        if isinstance(part, str):
            return _failed(_shown(tree, found.path), part, errno.EIO, found.offset)
    return good[0] if len(good) == 1 else b"".join(good)


def _shown(tree: Tree, path: Path | int) -> Path:
    return tree.path(path) if isinstance(path, int) else path


def _failed(path: Path, why: str, number: int, offset: int) -> FileError:
    shown = os.fsdecode(path)
    return FileError(f"{shown!r} cannot be read: {why}", errno=number, path=shown, offset=offset)
