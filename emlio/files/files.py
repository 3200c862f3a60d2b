"""`Files`, the files below a dataset's folder, read over the network.

Covers: the public methods, cutting what is wanted into questions, many of which are under way. Does not cover: the connection
(emlio.receiver.process_connection), asking daemons (emlio.receiver.engine.file_questions), looking up (emlio.store.tree).
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
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
from emlio.receiver.engine.file_questions import RangesQuestion, RangesRead
from emlio.receiver.process_connection import ProcessConnection
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.threads.interrupts import raises_interrupts
from emlio.receiver.threads.promise import Promise
from emlio.session.questions import RANGE
from emlio.store.tree import Tree
from emlio.units import counted, format_duration
from emlio.wire.limits import MOST_RANGE_QUESTIONS, RANGES_PER_REQUEST, RECORD_BYTES_PER_REPLY

__all__ = ["Files"]

_Ints = npt.NDArray[np.int64]
Path = str | bytes | PathLike[str]
Request = Path | tuple[Path | int, int, int]

_ALL = 1 << 62
"""More bytes than a file has."""

_FEW_QUESTIONS = MOST_RANGE_QUESTIONS // 2
"""Others are asked once no more are open, many at once: to wake a thread for each costs as much as an answer of 1 MiB."""

_MOST_BYTES = 64 << 20
"""Of answers that are asked for, or wait for the caller."""

_GRACE_S = 1.0
"""Daemons may be away for the same timeout. Then that is the error, since it says more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Requests as ranges of files, none of which ends behind its file; (n,) each.

    Attributes:
        paths: as they were asked for.
        files: their numbers.
        offsets: the first byte of each.
        lengths: its bytes; none where there is an error.
        errors: of paths where no file is, by place.
    """

    paths: Sequence[Path | int]
    files: _Ints
    offsets: _Ints
    lengths: _Ints
    errors: Mapping[int, FileError]


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A question for pieces, or for those that have bytes, over one of the connections."""

    wanted: npt.NDArray[np.bool_]
    size_bytes: int
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
            [path if length is None and not offset else (path, offset, _ALL if length is None else length)]
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
        tree, left = self.tree, iter(requests)
        asked: deque[_Found] = deque()

        def pieces() -> Iterator[npt.NDArray[np.void]]:
            """Look up as many as fill a question, while those before are under way."""
            while some := list(islice(left, RANGES_PER_REQUEST)):
                asked.append(_find(tree, some))
                yield _cut(asked[-1])

        parts = (part for read in self._answers(tree, pieces()) for part in _split(read))
        for first in parts:
            yield from _whole(tree, asked.popleft(), chain([first], parts))

    def read_ranges(self, files: _Ints, offsets: _Ints, lengths: _Ints) -> Iterator[RangesRead]:
        """Yield the bytes of ranges of files, in order, many in one memory: see `emlio.files.mount.source.Source`.

        Args:
            files: (n,) their numbers in the tree.
            offsets: (n,) the first byte of each.
            lengths: (n,) at most 1 MiB of each, all inside the file.

        Raises:
            PeerLostError: no daemon answered in time.
        """
        yield from self._answers(self.tree, iter([_ranges(files, offsets, lengths)]))

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

    def _answers(self, tree: Tree, arrays: Iterator[npt.NDArray[np.void]]) -> Iterator[RangesRead]:
        """Yield what was read of the ranges, in order, many at once; those of no length are not asked for."""
        asked: deque[_Asked] = deque()
        parts = (part for array in arrays for part in _that_fit(array, self._connections.answer_bytes))
        try:
            while True:
                under_way = sum(one.size_bytes for one in asked)
                if len(asked) <= _FEW_QUESTIONS and under_way <= _MOST_BYTES // 2:
                    some = _first(parts, MOST_RANGE_QUESTIONS - len(asked), _MOST_BYTES - under_way)
                    asked.extend(self._ask(tree, some))
                if not asked:
                    return
                try:
                    asked[0].promise.result(self._timeout_ns / 1e9 + _GRACE_S)
                except TimeoutError:
                    raise self._lost("a part of a file") from None
                one = asked.popleft()
                self._connections.end(one.load, one.size_bytes)
                yield _with_empty(one.question.result(), one.wanted)
        finally:
            for one in asked:
                one.promise.cancel()  # after an interrupt no caller waits for it
                self._connections.end(one.load, one.size_bytes)

    def _ask(self, tree: Tree, parts: "Sequence[npt.NDArray[np.void]]") -> "list[_Asked]":
        """Ask for parts, in order; those over one connection together, for which its thread is woken once."""
        sizes = [int(part["length"].sum()) for part in parts]
        loads = [self._connections.begin(size) for size in sizes]
        wanted = [part["length"] > 0 for part in parts]
        asked: dict[int, tuple[RangesQuestion, Promise]] = {}
        try:
            for load in {id(load): load for load in loads}.values():
                places = [place for place, one in enumerate(loads) if one is load]
                questions = load.connection.connected().shell.engine.questions
                made = questions.ranges(tree.digest, [parts[place][wanted[place]] for place in places])
                asked |= zip(places, made, strict=True)
        except BaseException:
            for load, size in zip(loads, sizes, strict=True):
                self._connections.end(load, size)
            raise
        return [_Asked(*given, *asked[place]) for place, given in enumerate(zip(wanted, sizes, loads, strict=True))]

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


def _find(tree: Tree, requests: Sequence[Request]) -> _Found:
    """Return what requests mean."""
    paths: list[Path | int] = [one[0] if isinstance(one, tuple) else one for one in requests]
    offsets, lengths = np.zeros(len(paths), np.int64), np.full(len(paths), _ALL, np.int64)
    for place, one in enumerate(requests):
        if isinstance(one, tuple):
            _, begin, most = one
            if begin < 0 or most < 0:
                raise ConfigError(f"offset and length must be at least 0, got {begin} and {most}")
            offsets[place], lengths[place] = min(begin, _ALL), min(most, _ALL)
    files = np.array([path if isinstance(path, int) else -1 for path in paths], np.int64)
    named = np.flatnonzero([not isinstance(path, int) for path in paths])
    files[named] = tree.lookup_all([os.fsencode(path) for path in paths if not isinstance(path, int)])
    good = files >= 0
    good[good] = tree.are_files(files[good])
    errors = {place: _error(tree, paths[place], int(offsets[place])) for place in np.flatnonzero(~good).tolist()}
    sizes = np.where(good, tree.sizes[np.where(good, files, 0)], 0)
    return _Found(paths, files, np.minimum(offsets, sizes), np.minimum(lengths, np.maximum(sizes - offsets, 0)), errors)


def _error(tree: Tree, path: Path | int, offset: int) -> FileError:
    """Return why there is no file at a path."""
    number = errno.EISDIR
    try:
        if not isinstance(path, int):
            tree.lookup(path)
    except FileError as error:
        number = error.errno or errno.EIO
    return _failed(_shown(tree, path), os.strerror(number), number, offset)


def _counts(lengths: _Ints) -> _Ints:
    """Return into how many pieces ranges are cut, of which one fits an answer; one for those of no length."""
    counts: _Ints = np.maximum(-(-lengths // RECORD_BYTES_PER_REPLY), 1)
    return counts


def _cut(found: _Found) -> npt.NDArray[np.void]:
    """Return what is wanted in pieces."""
    counts = _counts(found.lengths)
    if len(counts) == counts.sum():
        return _ranges(found.files, found.offsets, found.lengths)
    which = np.repeat(np.arange(len(counts)), counts)
    behind = (np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)) * RECORD_BYTES_PER_REPLY
    lengths = np.minimum(found.lengths[which] - behind, RECORD_BYTES_PER_REPLY)
    return _ranges(found.files[which], found.offsets[which] + behind, lengths)


def _ranges(files: _Ints, offsets: _Ints, lengths: _Ints) -> npt.NDArray[np.void]:
    made = np.empty(len(files), RANGE)
    made["file"], made["offset"], made["length"] = files, offsets, lengths
    return made


def _that_fit(pieces: npt.NDArray[np.void], most_bytes: Callable[[], int]) -> "Iterator[npt.NDArray[np.void]]":
    """Yield pieces in parts: as many as a question may be for and as have so many bytes, but one at least.

    A question whose answer takes two messages costs two round trips, the second of which begins after other answers.
    """
    ends = np.cumsum(pieces["length"], dtype=np.int64)
    begin = 0
    while begin < len(pieces):
        before = int(ends[begin - 1]) if begin else 0
        full = int(np.searchsorted(ends, before + most_bytes(), side="right"))
        end = min(max(full, begin + 1), begin + RANGES_PER_REQUEST)
        yield pieces[begin:end]
        begin = end


def _first(parts: "Iterator[npt.NDArray[np.void]]", most: int, most_bytes: int) -> "list[npt.NDArray[np.void]]":
    """Return the first parts, as many as have so many bytes; the last one may exceed them."""
    found = list[npt.NDArray[np.void]]()
    while len(found) < most and most_bytes > 0 and (part := next(parts, None)) is not None:
        found.append(part)
        most_bytes -= int(part["length"].sum())
    return found


def _with_empty(read: RangesRead, wanted: npt.NDArray[np.bool_]) -> RangesRead:
    """Return what was read with ranges of no length among those that were wanted."""
    if wanted.all():
        return read
    starts, sizes = np.zeros((2, len(wanted)), np.int64)
    starts[wanted], sizes[wanted] = read.starts, read.sizes
    places = np.flatnonzero(wanted).tolist()
    return RangesRead(read.memory, starts, sizes, {places[one]: why for one, why in read.failures.items()})


def _split(read: RangesRead) -> "list[bytes | str]":
    """Return the bytes of each range, or why there are none."""
    memory, starts = read.memory, read.starts
    found: list[bytes | str] = [
        bytes(memory[begin:end]) for begin, end in zip(starts.tolist(), (starts + read.sizes).tolist(), strict=True)
    ]
    for place, why in read.failures.items():
        found[place] = why
    return found


def _whole(tree: Tree, found: _Found, parts: "Iterator[bytes | str]") -> "Iterator[bytes | FileError]":
    """Yield the bytes of each request, of which there are one or more parts, or its error."""
    for place, count in enumerate(_counts(found.lengths).tolist()):
        first = next(parts)
        error = found.errors.get(place)
        if count == 1 and error is None and isinstance(first, bytes):
            yield first
            continue
        pieces = [first, *(next(parts) for _ in range(count - 1))]
        good = [piece for piece in pieces if isinstance(piece, bytes)]
        if error is None and len(good) < count:
            why = next(piece for piece in pieces if isinstance(piece, str))
            error = _failed(_shown(tree, found.paths[place]), why, errno.EIO, int(found.offsets[place]))
        yield (good[0] if count == 1 else b"".join(good)) if error is None else error


def _shown(tree: Tree, path: Path | int) -> Path:
    return tree.path(path) if isinstance(path, int) else path


def _failed(path: Path, why: str, number: int, offset: int) -> FileError:
    shown = os.fsdecode(path)
    return FileError(f"{shown!r} cannot be read: {why}", errno=number, path=shown, offset=offset)
