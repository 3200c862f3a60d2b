"""`Orders`, the orders of files that others tell a mount."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import FileError
from emlio.files.mount.agent import Agent
from emlio.store.folder import Kind
from emlio.store.tree import Tree

__all__ = ["Orders"]

_MOST_OWNERS: Final = 1024

_LISTER: Final = """
import os, sys
for folder in sys.stdin.buffer.read().split(b"\\0"):
    try:
        for _ in os.scandir(os.path.join(os.fsencode(sys.argv[1]), folder)):
            pass
    except OSError:
        pass
"""
"""The kernel takes bytes only of files that it knows, and learns them where a folder is listed. Not by this process: a mount
must not be read by the process that serves it."""

_LIST_S: Final = 600.0


class Orders:
    """Takes paths, and gives an agent their files' numbers. Each owner has one order. Threads may share it.

    Owners of hints are named by their process and the order's name: what processes left that have ended is replaced.
    """

    def __init__(self, agent: Agent, tree: Tree) -> None:
        """See the class."""
        self._agent, self._tree = agent, tree
        self._lock = Lock()
        self._names: dict[str, int] = {}

    def take(self, owner: str, paths: Iterable[bytes]) -> Sequence[bytes]:
        """Replace an owner's order; return the paths that are no files, which are left out."""
        directory = os.fsencode(self._agent.mount.directory) + b"/"
        folders: dict[bytes, int | None] = {}
        found: list[int] = []
        unknown: list[bytes] = []
        for path in paths:
            number = self._file(path.removeprefix(directory), folders)
            if number is None:
                unknown.append(path)
            else:
                found.append(number)
        self.take_files(owner, np.array(found, np.int64))
        return unknown

    def take_files(self, owner: str, files: npt.NDArray[np.int64]) -> None:
        """Replace an owner's order by the numbers of files."""
        if len(files):
            self._list(files)
        with self._lock:
            for one in [one for one in self._names if one == owner or _has_left(one, owner)]:
                self._agent.forget(self._names.pop(one))
            if len(files):
                self._names[owner] = self._agent.hint(files)
            if len(self._names) > _MOST_OWNERS:
                self._agent.forget(self._names.pop(next(iter(self._names))))

    def _file(self, path: bytes, folders: dict[bytes, int | None]) -> int | None:
        head, _, name = path.rpartition(b"/")
        try:
            if head not in folders:
                folders[head] = None
                folders[head] = self._tree.folder(head)
            folder = folders[head]
            number = None if folder is None or path[:1] == b"/" else self._tree.lookup(name, start=folder)
        except FileError:
            return None
        return number if number is not None and self._tree.kind(number) is Kind.FILE else None

    def _list(self, files: npt.NDArray[np.int64]) -> None:
        folders = np.unique(self._tree.parents()[files]).tolist()
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LISTER, self._agent.mount.directory],
            input=b"\0".join(self._tree.path(folder) for folder in folders),
            timeout=_LIST_S,
            check=False,
        )


def _has_left(owner: str, next_owner: str) -> bool:
    """Return whether an order is of a process that has ended, and of the same name as the next one: see `HintListener`."""
    (process, _, name), next_name = owner.partition(" "), next_owner.partition(" ")[2]
    return name == next_name and process.isdecimal() and not os.path.exists(f"/proc/{process}")
