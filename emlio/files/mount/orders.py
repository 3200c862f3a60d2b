"""`Orders`, the orders of files that others tell a mount."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.files.mount.agent import Agent
from emlio.store.tree import Tree

__all__ = ["Orders"]

_MOST_OWNERS: Final = 1024


class Orders:
    """Takes paths, and gives an agent their files' numbers. Each owner has one order. Threads may share it.

    Owners of hints are named by their process and the order's name: what processes left that have ended is replaced.
    """

    def __init__(self, agent: Agent, tree: Tree) -> None:
        """See the class."""
        self._agent, self._tree = agent, tree
        self._started_at: bytes | None = None
        with suppress(FileNotFoundError):  # it was removed
            self._started_at = os.getcwdb()
        self._lock = Lock()
        self._names: dict[str, int] = {}

    def take(self, owner: str, paths: Iterable[bytes]) -> Sequence[bytes]:
        """Replace an owner's order; return the paths that are no files, which are left out.

        They are below the mounted folder, or as a program opens them that was started where this one was.
        """
        directory = os.fsencode(self._agent.mount.directory) + b"/"
        kept = list(paths)
        inside = [path.removeprefix(directory) for path in kept]
        found = self._tree.lookup_all([path if path[:1] != b"/" else b".." for path in inside])
        places = np.flatnonzero(found < 0).tolist()
        if places and self._started_at is not None:
            whole = [os.path.normpath(os.path.join(self._started_at, inside[place])) for place in places]
            there = [path.removeprefix(directory) if path.startswith(directory) else b".." for path in whole]
            found[places] = self._tree.lookup_all(there)
        good = found > 0
        good[good] = self._tree.are_files(found[good])
        self.take_files(owner, found[good])
        return [kept[place] for place in np.flatnonzero(~good).tolist()]

    def take_files(self, owner: str, files: npt.NDArray[np.int64]) -> None:
        """Replace an owner's order by the numbers of files."""
        with self._lock:
            last = {one: name for one, name in self._names.items() if one == owner or _has_left(one, owner)}
            name = self._agent.hint(files, instead_of=last.values()) if len(files) else 0
            for one, ended in last.items():
                del self._names[one]
                self._agent.forget(ended)
            if name:
                self._names[owner] = name
            if len(self._names) > _MOST_OWNERS:
                self._agent.forget(self._names.pop(next(iter(self._names))))


def _has_left(owner: str, next_owner: str) -> bool:
    """Return whether an order is of a process that has ended, and of the same name as the next one: see `HintListener`."""
    (process, _, name), next_name = owner.partition(" "), next_owner.partition(" ")[2]
    return name == next_name and process.isdecimal() and not os.path.exists(f"/proc/{process}")
