"""Listing folders of a mount, so that the kernel knows their files before they are pushed and read."""

import subprocess
import sys
from tempfile import TemporaryFile
from threading import Lock
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.store.tree import Tree

__all__ = ["Lister"]

_Ints = npt.NDArray[np.int64]

_PROGRAM: Final = """
import os, sys
for folder in sys.stdin.buffer.read().split(b"\\0"):
    try:
        for _ in os.scandir(os.path.join(os.fsencode(sys.argv[1]), folder)):
            pass
    except OSError:
        pass
"""
"""The kernel takes bytes only of files that it knows. It learns those of a whole folder with a request for some hundred, where
each that is opened or pushed before takes one. Not in this process: a mount must not be read by the process that serves it."""

_FORGOTTEN: Final = 1000
"""After so many pushes of files that the kernel had forgotten, under memory pressure, folders are listed again."""


class Lister:
    """Lists folders in the order in which their files will be read, beside the readers. Threads may share it."""

    def __init__(self, tree: Tree, directory: str, max_files: int) -> None:
        """See the class.

        Args:
            tree: the entries.
            directory: where they are mounted.
            max_files: of the folders that are listed: each takes about 1 kB of the kernel's memory.
        """
        self._tree, self._directory = tree, directory
        self._parents = tree.parents()
        self._lock = Lock()
        self._listed = np.zeros(len(tree), np.bool_)
        self._left, self._forgotten = max_files, 0
        self._running: list[subprocess.Popen[bytes]] = []

    def are_kept(self, files: _Ints) -> npt.NDArray[np.bool_]:
        """Return which files stay known to the kernel when they were read: those in folders that are listed."""
        kept: npt.NDArray[np.bool_] = self._listed[self._parents[files]]
        return kept

    def list(self, files: _Ints, forgotten: int) -> None:
        """Begin to list the folders of files, as far as the bound allows, that were not listed before.

        Args:
            files: in the order in which they will be read.
            forgotten: how many were not known to the kernel when they were pushed, since the beginning.
        """
        with self._lock:
            again = forgotten - self._forgotten > _FORGOTTEN
            self._forgotten = forgotten if again else self._forgotten
            folders, first = np.unique(self._parents[files], return_index=True)
            wanted = folders[np.argsort(first)]
            known = self._listed[wanted]
            fits = np.cumsum(np.where(known, 0, self._tree.sizes[wanted])) <= self._left
            self._left -= int(self._tree.sizes[wanted[fits & ~known]].sum())
            self._listed[wanted[fits]] = True
            new = wanted[fits & (~known | again)]
            self._running = [one for one in self._running if one.poll() is None]
            if not len(new):
                return
            with TemporaryFile() as paths:
                paths.write(b"\0".join(self._tree.path(folder) for folder in new.tolist()))
                paths.seek(0)
                words = [sys.executable, "-I", "-S", "-c", _PROGRAM, self._directory]
                self._running.append(subprocess.Popen(words, stdin=paths))

    def close(self) -> None:
        """End what lists, after the mount has ended."""
        with self._lock:
            for one in self._running:
                one.kill()
                one.wait()
            self._running.clear()
