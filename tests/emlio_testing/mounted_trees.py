"""Trees of files in memory, as a mount takes them and as a test compares them; and sources of their bytes."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from emlio.files.mount.source import RangesRead
from emlio.store.file_table import NameTable
from emlio.store.tree import Tree

__all__ = ["MTIME_NS", "Link", "MemorySource", "MountedTree", "Range", "Sparse", "mount_is_refused", "read_of"]

MTIME_NS: Final = 1_600_000_000_123_456_789


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: bytes


@dataclass(frozen=True, slots=True)
class Sparse:
    """A file of any size, whose bytes are told by where they are."""

    size: int

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of it: each group of 8 has its own number."""
        first = offset // 8
        words = np.arange(first, (offset + size + 7) // 8, dtype="<u8") * 0x9E3779B97F4A7C15
        return words.tobytes()[offset - first * 8 :][:size]


Content = bytes | Link | Sparse | None
"""None is a folder."""


class MountedTree:
    """Paths and their content; folders on the way need not be named. Entries are numbered folder by folder, sorted by name."""

    def __init__(self, content: Mapping[bytes, Content], modes: Mapping[bytes, int] | None = None) -> None:
        """See the class."""
        whole: dict[bytes, Content] = {b"": None}
        for path, held in content.items():
            parts = path.split(b"/")
            for depth in range(1, len(parts)):
                whole.setdefault(b"/".join(parts[:depth]), None)
            whole[path] = held
        children: dict[bytes, list[bytes]] = {}
        for path in whole:
            if path:
                children.setdefault(path.rpartition(b"/")[0], []).append(path)
        self.paths = [b""]
        for path in self.paths:  # which grows
            self.paths += sorted(children.get(path, []))
        self.content = [whole[path] for path in self.paths]
        self.numbers = {path: number for number, path in enumerate(self.paths)}
        names = [path.rpartition(b"/")[2] for path in self.paths]
        targets = [held.target if isinstance(held, Link) else b"" for held in self.content]
        given = modes or {}
        self.tree = Tree(
            modes=np.array(
                [_mode(held, given.get(path)) for path, held in zip(self.paths, self.content, strict=True)], np.uint16
            ),
            sizes=np.array(
                [
                    len(children.get(path, ())) if held is None else len(target) if target else self.size(number)
                    for number, (path, held, target) in enumerate(zip(self.paths, self.content, targets, strict=True))
                ],
                np.int64,
            ),
            mtimes_ns=np.full(len(self.paths), MTIME_NS) + np.arange(len(self.paths)),
            names=NameTable(np.frombuffer(b"".join(names), np.uint8), np.cumsum([0, *map(len, names)])),
            targets=np.frombuffer(b"".join(targets), np.uint8),
        )

    def size(self, number: int) -> int:
        """Return the size of a file, 0 for others."""
        held = self.content[number]
        return len(held) if isinstance(held, bytes) else held.size if isinstance(held, Sparse) else 0

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return bytes of a file."""
        held = self.content[number]
        return (
            held.read(offset, min(size, max(held.size - offset, 0)))
            if isinstance(held, Sparse)
            else _raw(held)[offset:][:size]
        )

    @property
    def files(self) -> list[int]:
        """The numbers of the files."""
        return [number for number, held in enumerate(self.content) if isinstance(held, bytes | Sparse)]


def _raw(held: Content) -> bytes:
    assert isinstance(held, bytes)
    return held


def _mode(held: Content, given: int | None) -> int:
    kind, usual = (stat.S_IFDIR, 0o555) if held is None else (stat.S_IFLNK, 0o777)
    if isinstance(held, bytes | Sparse):
        kind, usual = stat.S_IFREG, 0o444
    return kind | (usual if given is None else given)


class Range(NamedTuple):
    """Bytes of a file that a source was asked for."""

    entry: int
    offset: int
    size: int


@dataclass(slots=True)
class MemorySource:
    """Reads a tree in memory.

    Attributes:
        tree: what is read.
        opened: nothing is answered before it is set.
        asked: what was asked for.
        failing: entries that cannot be read.
    """

    tree: MountedTree
    opened: Event = field(default_factory=Event)
    asked: list[Range] = field(default_factory=list[Range])
    failing: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.opened.set()

    def read_ranges(
        self, files: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> Iterator[RangesRead]:
        """See `Source`."""
        ranges = [Range(*row) for row in zip(files.tolist(), offsets.tolist(), lengths.tolist(), strict=True)]
        self.asked += ranges
        self.opened.wait(60)
        for some in _batched(ranges):
            failed = {place: "this file cannot be read" for place, one in enumerate(some) if one.entry in self.failing}
            yield read_of([b"" if place in failed else self.tree.read(*one) for place, one in enumerate(some)], failed)


def _batched(ranges: Sequence[Range], most: int = 100) -> Iterator[Sequence[Range]]:
    """Yield ranges, some at once."""
    for first in range(0, len(ranges), most):
        yield ranges[first : first + most]


def read_of(parts: Sequence[bytes], failures: Mapping[int, str] | None = None) -> RangesRead:
    """Return what a source gives for these bytes of ranges."""
    sizes = np.array([len(part) for part in parts], np.int64)
    return RangesRead(b"".join(parts), np.cumsum(sizes) - sizes, sizes, failures or {})


def mount_is_refused() -> str:
    """Return why this process cannot mount; "" if it can."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse cannot be opened: {error.strerror}"
    return "" if os.geteuid() == 0 else "only root, or a user namespace, may mount"
