"""The entries of a folder on their way from a daemon to a rank, in compressed parts.

A part has its entries in columns, little-endian: `mode` 2 bytes, `size` 8 bytes, `mtime_ns` 8 bytes, signed, and the length
of the name, 2 bytes, for each; then the names, and then the targets of its links.

Covers: cutting a tree, putting it together with every length checked before memory is taken. Does not cover: the meaning of
the entries (emlio.store.tree).
"""

import stat
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError, RemoteProtocolError
from emlio.session.contents import pack, unpack
from emlio.store.file_table import NameTable
from emlio.store.tree import Tree
from emlio.wire.limits import CONTENT_PART_BYTES
from emlio.wire.questions import AskTree, TreePart

__all__ = ["TreeCollector", "cut_tree"]

_COLUMNS = ("<u2", "<i8", "<i8", "<u2")
_ENTRY_BYTES = 20
_MOST_NAME, _MOST_TARGET = 1024, 4095
"""Names of some file systems have 255 characters, not bytes. Longer ones would only take memory."""

_AT_ONCE = CONTENT_PART_BYTES // _ENTRY_BYTES


def cut_tree(tree: Tree, first: int) -> TreePart:
    """Return the part of a tree that begins with entry `first`, which there must be."""
    end = min(first + _AT_ONCE, len(tree))
    bounds = tree.names.bounds[first : end + 1]
    links = np.where((tree.modes[first:end] & 0o170000) == stat.S_IFLNK, tree.sizes[first:end], 0)
    needed = _ENTRY_BYTES * np.arange(1, end - first + 1) + (bounds[1:] - bounds[0]) + np.cumsum(links)
    count = int(np.searchsorted(needed, CONTENT_PART_BYTES, side="right"))
    part = slice(first, first + count)
    columns: tuple[npt.NDArray[Any], ...] = (
        tree.modes[part],
        tree.sizes[part],
        tree.mtimes_ns[part],
        np.diff(bounds[: count + 1]),
    )
    begin = tree.target_begin(first)
    data = b"".join(
        (
            *(column.astype(kind).tobytes() for column, kind in zip(columns, _COLUMNS, strict=True)),
            tree.names.text[bounds[0] : bounds[count]].tobytes(),
            tree.targets[begin : begin + int(links[:count].sum())].tobytes(),
        )
    )
    return TreePart(tree=tree.digest, first=first, count=count, total=len(tree), size=len(data), data=pack(data))


class TreeCollector:
    """A tree that is being received."""

    def __init__(self) -> None:
        self._digest = b""
        self._total = 0
        self._count = 0
        self._columns: list[list[npt.NDArray[Any]]] = [[] for _ in _COLUMNS]  # the parts of each
        self._names: list[bytes] = []
        self._targets: list[bytes] = []

    def ask(self) -> AskTree:
        """Return the question for the next part."""
        return AskTree(tree=self._digest, first=self._count)

    def take(self, part: TreePart) -> Tree | None:
        """Return the tree that this part completes, or None. It must be an answer to what `ask` returned.

        Raises:
            RemoteProtocolError: it is not the next part, or the entries are no tree.
        """
        if self._count and part.total != self._total:
            raise RemoteProtocolError(f"a tree must have {self._total} entries in all its parts, got {part.total}")
        self._digest, self._total = part.tree, part.total
        self._add(unpack(part.data, part.size), part.count)
        return self._tree() if self._count == self._total else None

    def _add(self, data: bytes, count: int) -> None:
        if len(data) < _ENTRY_BYTES * count:
            raise RemoteProtocolError(f"a part of a tree must have {count} entries, got {len(data)} bytes")
        at = 0
        for kind, column in zip(_COLUMNS, self._columns, strict=True):
            column.append(np.frombuffer(data, kind, count, at).copy())
            at += column[-1].nbytes
        modes, sizes, _, lengths = (column[-1] for column in self._columns)
        links = sizes[(modes & 0o170000) == stat.S_IFLNK]
        names = int(lengths.sum(dtype=np.int64))
        targets = len(data) - at - names
        if targets < 0 or (links < 0).any() or (links > targets).any() or int(links.sum()) != targets:
            raise RemoteProtocolError(f"a part of a tree must have its names and targets, got {len(data)} bytes")
        if lengths.max() > _MOST_NAME or (links > _MOST_TARGET).any():
            raise RemoteProtocolError(
                f"a name must have at most {_MOST_NAME} bytes and a link {_MOST_TARGET}, got {lengths.max()} and "
                f"{links.max(initial=0)}"
            )
        self._names.append(data[at : at + names])
        self._targets.append(data[at + names :])
        self._count += count

    def _tree(self) -> Tree:
        modes, sizes, mtimes_ns, lengths = (_joined(column) for column in self._columns)
        text = b"".join(self._names)
        self._names.clear()
        bounds = np.zeros(self._total + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        try:
            tree = Tree(
                modes=modes,
                sizes=sizes,
                mtimes_ns=mtimes_ns,
                names=NameTable(np.frombuffer(text, np.uint8), bounds),
                targets=np.frombuffer(b"".join(self._targets), np.uint8),
            )
        except DatasetError as error:
            raise RemoteProtocolError(str(error)) from None
        if tree.digest != self._digest:
            raise RemoteProtocolError(f"a tree must have the digest {self._digest.hex()}, got {tree.digest.hex()}")
        out = tree.links_out()
        if out:
            raise RemoteProtocolError(
                f"links must stay below the folder, got {tree.path(out[0])!r} to {tree.target(out[0])!r}"
            )
        return tree


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return a column of its parts, which are dropped: a million entries must not be there twice."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole.astype(whole.dtype.newbyteorder("="), copy=False)
