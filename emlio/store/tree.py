"""The entries below a folder as arrays: files, folders and links, as they were when the folder was walked.

Entries are numbered from the top folder, which is 0, one folder after the other: the entries of a folder follow each
other, sorted by the bytes of their names, and folders come in the order of their own numbers. So a folder's number of
entries says where they are, and no entry names its parent.

Covers: looking up, following links inside. Does not cover: walking a folder (emlio.store.tree_walk), how a tree travels
(emlio.session.trees).
"""

import errno
import hashlib
import os
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError, FileError
from emlio.native.paths import find_paths
from emlio.store.file_table import NameTable
from emlio.store.folder import Kind

__all__ = ["Entry", "Tree"]

_DIGEST_BYTES = 16

_LINKS = 40
"""The kernel's own limit of links on a way."""

_FORMATS = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.FOLDER, stat.S_IFLNK: Kind.LINK}
_FORMAT = 0o170000
_ODD = (b".", b"..")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a tree.

    Attributes:
        kind: a file, a folder or a link.
        mode: its permissions, those to read and to execute.
        size_bytes: of a file; of a link that of its target's path, of a folder how many entries it has.
        mtime_ns: the time of its last change.
    """

    kind: Kind
    mode: int
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tree:
    """All entries below a folder; shapes (n,) for n entries.

    Attributes:
        modes: what each is, and its permissions, as in `st_mode`.
        sizes: see `Entry`.
        mtimes_ns: likewise.
        names: theirs, in their folders; that of the top one is empty.
        targets: the paths that links hold, back to back in the order of the links.
    """

    modes: npt.NDArray[np.uint16]
    sizes: npt.NDArray[np.int64]
    mtimes_ns: npt.NDArray[np.int64]
    names: NameTable
    targets: npt.NDArray[np.uint8]
    digest: bytes = field(init=False)
    """Identifies the tree: two with the same digest have the same entries."""

    # Without NumPy, which takes ten times as long for one number: each path that is looked up needs several.
    _modes: "memoryview[int]" = field(init=False, repr=False)
    _sizes: "memoryview[int]" = field(init=False, repr=False)
    _folders: "memoryview[int]" = field(init=False, repr=False)
    _firsts: "memoryview[int]" = field(init=False, repr=False)
    """The first entry of each of these folders."""

    _links: "memoryview[int]" = field(init=False, repr=False)
    _target_bounds: "memoryview[int]" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that the entries are a tree.

        Raises:
            DatasetError: they are none.
        """
        formats = self.modes & _FORMAT
        folders = np.flatnonzero(formats == stat.S_IFDIR)
        ends = np.cumsum(self.sizes[folders]) + 1
        firsts = ends - self.sizes[folders]
        links = np.flatnonzero(formats == stat.S_IFLNK)
        bounds = np.concatenate(([0], np.cumsum(self.sizes[links])))
        fault = _fault_in(self, formats, folders, firsts, int(bounds[-1]))
        if fault:
            raise DatasetError(f"the entries of a folder must be a tree: {fault}")
        state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        lengths = np.diff(self.names.bounds).astype(np.uint16)
        for column in (self.modes, self.sizes, self.mtimes_ns, lengths, self.names.text, self.targets):
            state.update(np.ascontiguousarray(column, column.dtype.newbyteorder("<")).data)
        for name, value in (
            ("digest", state.digest()),
            ("_modes", self.modes.data),
            ("_sizes", self.sizes.data),
            ("_folders", folders.data),
            ("_firsts", firsts.data),
            ("_links", links.data),
            ("_target_bounds", bounds.data),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return the number of entries, the top folder among them."""
        return len(self.modes)

    def kind(self, number: int) -> Kind:
        """Return what an entry is."""
        return _FORMATS[self._modes[number] & _FORMAT]

    def parents(self) -> npt.NDArray[np.int32]:
        """Return the folder of each entry; the top one is in itself."""
        folders = np.flatnonzero((self.modes & _FORMAT) == stat.S_IFDIR).astype(np.int32)
        return np.concatenate((np.zeros(1, np.int32), np.repeat(folders, self.sizes[folders])))

    def are_files(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of these entries are files."""
        found: npt.NDArray[np.bool_] = (self.modes[numbers] & _FORMAT) == stat.S_IFREG
        return found

    def entry(self, number: int) -> Entry:
        """Return an entry."""
        return Entry(
            kind=self.kind(number),
            mode=self._modes[number] & ~_FORMAT,
            size_bytes=self._sizes[number],
            mtime_ns=int(self.mtimes_ns[number]),
        )

    def entries(self, folder: int) -> range:
        """Return the numbers of a folder's entries."""
        first = self._firsts[bisect_left(self._folders, folder)]
        return range(first, first + self._sizes[folder])

    def below(self, folder: int) -> list[range]:
        """Return the numbers of all entries below a folder, level by level."""
        found: list[range] = []
        here = self.entries(folder)
        while here:
            found.append(here)
            first, last = (bisect_left(self._folders, number) for number in (here.start, here.stop))
            if first == last:
                break
            end = self._folders[last - 1]
            here = range(self._firsts[first], self._firsts[last - 1] + self._sizes[end])
        return found

    def target(self, link: int) -> bytes:
        """Return the path that a link holds."""
        place = bisect_left(self._links, link)
        return self.targets[self._target_bounds[place] : self._target_bounds[place + 1]].tobytes()

    def target_begin(self, number: int) -> int:
        """Return where the targets of links from an entry on begin in `targets`."""
        return self._target_bounds[bisect_left(self._links, number)]

    def parent(self, number: int) -> int:
        """Return the folder of an entry; the top one is in itself."""
        if number == 0:
            return 0
        return self._folders[bisect_right(self._firsts, number) - 1]

    def path(self, number: int) -> bytes:
        """Return an entry's path below the top folder, which is empty for that itself."""
        parts: list[bytes] = []
        while number:
            parts.append(self.names.raw(number))
            number = self.parent(number)
        return b"/".join(reversed(parts))

    def lookup(self, path: "str | bytes | PathLike[str]", *, follow: bool = True, start: int = 0) -> int:
        """Return the number of the entry at a path below the top folder.

        Args:
            path: relative to it; a / at its begin means the same.
            start: the folder that it is relative to instead.
            follow: whether to return where a link leads to, if the path is that of one. Links on the way are followed.

        Raises:
            FileError: there is none (ENOENT, ENOTDIR, ELOOP).
        """
        whole = os.fsencode(path)
        waiting = whole.split(b"/")[::-1]
        here, links = start, 0
        while waiting:
            part = waiting.pop()
            if self.kind(here) is not Kind.FOLDER:
                raise _no(errno.ENOTDIR, whole)
            if part in (b"", b"."):
                continue
            if part == b"..":
                here = self.parent(here)
                continue
            found = self._child(here, part)
            if found < 0:
                raise _no(errno.ENOENT, whole)
            if self.kind(found) is Kind.LINK and (follow or waiting):
                links += 1
                if links > _LINKS:
                    raise _no(errno.ELOOP, whole)
                waiting += self.target(found).split(b"/")[::-1]
            else:
                here = found
        return here

    def links_out(self) -> list[int]:
        """Return the links that lead out of the top folder: at a mount they would show what else is on that host.

        One without .. stays: the links on its way are looked at by themselves.
        """
        return [link for link in self._links.tolist() if self._leads_out(link)]

    def _leads_out(self, link: int) -> bool:
        target = self.target(link)
        if target[:1] == b"/":
            return True
        waiting = target.split(b"/")[::-1]
        if b".." not in waiting:
            return False
        here, links = self.parent(link), 0
        while waiting:
            part = waiting.pop()
            if part in (b"", b"."):
                continue
            found = self._child(here, part) if part != b".." else self.parent(here)
            if part == b".." and here == 0:
                return True
            if found < 0 or self.kind(found) is Kind.FILE:
                return False  # it leads nowhere
            if self.kind(found) is Kind.LINK:
                links += 1
                target = self.target(found)
                if links > _LINKS or target[:1] == b"/":
                    return links <= _LINKS
                waiting += target.split(b"/")[::-1]
            else:
                here = found
        return False

    def lookup_all(self, paths: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """Return the numbers of the entries at paths; -1 where there is none, of which `lookup` says why."""
        columns = np.asarray(self._folders), np.asarray(self._firsts)
        found = find_paths(self.modes, self.sizes, (self.names.text, self.names.bounds), columns, paths)
        for place in np.flatnonzero(found < 0).tolist():
            with suppress(FileError):
                found[place] = self.lookup(paths[place])
        return found

    def listdir(self, path: "str | bytes | PathLike[str]" = "") -> list[str]:
        """Return the names in a folder, in their order.

        Raises:
            FileError: there is no such folder.
        """
        return [self.names[number] for number in self.entries(self.folder(path))]

    def folder(self, path: "str | bytes | PathLike[str]") -> int:
        """Return the number of the folder at a path.

        Raises:
            FileError: there is none.
        """
        number = self.lookup(path)
        if self.kind(number) is not Kind.FOLDER:
            raise _no(errno.ENOTDIR, os.fsencode(path))
        return number

    def stat(self, path: "str | bytes | PathLike[str]", *, follow: bool = True) -> Entry:
        """Return the entry at a path; see `lookup`."""
        return self.entry(self.lookup(path, follow=follow))

    def walk(self, path: "str | bytes | PathLike[str]" = "") -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield the path of a folder and of each below it, with the names of its folders and its other entries.

        Like os.walk: links are not followed, and the list of folders may be changed.
        """
        waiting = [(os.fsdecode(path).strip("/"), self.folder(path))]
        while waiting:
            name, number = waiting.pop()
            below: dict[str, int] = {}
            others: list[str] = []
            for one in self.entries(number):
                if self.kind(one) is Kind.FOLDER:
                    below[self.names[one]] = one
                else:
                    others.append(self.names[one])
            folders = list(below)
            yield name, folders, others
            begin = f"{name}/" if name else ""
            waiting += [(begin + one, below[one]) for one in reversed(folders)]

    def _child(self, folder: int, name: bytes) -> int:
        """Return the number of a folder's entry of this name, or -1."""
        within = self.entries(folder)
        place = bisect_left(within, name, key=self.names.raw)
        return within[place] if place < len(within) and self.names.raw(within[place]) == name else -1


def _fault_in(
    tree: Tree,
    formats: npt.NDArray[np.integer[Any]],
    folders: npt.NDArray[np.int64],
    firsts: npt.NDArray[np.int64],
    target_bytes: int,
) -> str:
    """Return what is wrong with a tree; "" if it is one."""
    count = len(tree.modes)
    lengths = np.diff(tree.names.bounds)
    if not count or {len(tree.sizes), len(tree.mtimes_ns), len(tree.names)} != {count}:
        return f"columns of {count} entries differ in length"
    if formats[0] != stat.S_IFDIR or not np.isin(formats, list(_FORMATS)).all():
        return "the first must be a folder, and all files, folders or links"
    if (tree.sizes < 0).any() or (tree.sizes[folders] > count).any():
        return "a size is negative, or a folder has more entries than there are"
    inner = folders[tree.sizes[folders] > 0]
    if int(tree.sizes[folders].sum()) + 1 != count or (firsts[tree.sizes[folders] > 0] <= inner).any():
        return f"its folders do not have {count - 1} entries, each in one that comes before it"
    if target_bytes != len(tree.targets):
        return f"links have {target_bytes} bytes of targets, got {len(tree.targets)}"
    if lengths[0] or (lengths[1:] <= 0).any() or int(tree.names.bounds[-1]) != len(tree.names.text):
        return "each entry but the top folder must have a name"
    if np.isin(tree.names.text, (0, ord("/"))).any():
        return "a name must not contain / or a zero byte"
    short = np.flatnonzero(lengths <= 2)
    if any(tree.names.raw(number) in _ODD for number in short.tolist()):
        return "a name must not be . or .."
    return ""


def _no(number: int, path: bytes) -> FileError:
    shown = os.fsdecode(path)
    return FileError(f"{shown!r}: {os.strerror(number)}", errno=number, path=shown, offset=0)
