"""The files of a dataset in one place: the contract of folders and buckets, and what both have in common."""

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["Store"]


class Store(ABC):
    """The files of a place, by number, and what identifies the content of each. Thread-safe. See also `Files`.

    Attributes:
        names: see `Files`.
        sizes: see `Files`.
        passed_over: links that are not followed.
        junk: files and folders that are no data, and not among the files.
        remote: whether each read is a request to a server.
        unwritten: the columns, see `columns`, that stay the same as long as nothing writes to a file on purpose.
    """

    remote: bool = False
    unwritten: tuple[str, ...]

    def __init__(
        self,
        names: Sequence[str],
        sizes: npt.NDArray[np.int64],
        *,
        endings: Mapping[str, int] | None = None,
        marks: Iterable[str] = (),
        passed_over: Sequence[str] = (),
        junk: Sequence[str] = (),
    ) -> None:
        """See the class.

        Args:
            names: the files.
            sizes: theirs.
            endings: see `Files`; counted when they are asked for, if they are not known.
            marks: names that count as endings although they are those of no files.
            passed_over: see the class.
            junk: see the class.
        """
        self.names = names
        self.sizes = sizes
        self.passed_over = tuple(passed_over)
        self.junk = tuple(junk)
        self._endings = endings
        self._marks = marks

    @property
    def endings(self) -> Mapping[str, int]:
        """See `Files`."""
        if self._endings is None:
            self._endings = Counter(os.path.splitext(name)[1].lower() for name in self.names) + Counter(self._marks)
        return self._endings

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.names)

    def size_bytes(self, number: int) -> int:
        """Return a file's size."""
        return int(self.sizes[number])

    def top(self, owns: Callable[[str], bool]) -> Self:
        """Return the files at the top that have such names."""
        return self.only([number for number, name in enumerate(self.names) if "/" not in name and owns(name)])

    def missing(self, name: str) -> str:
        """Return the name of a file that is not here, with why, for people."""
        return name

    @property
    @abstractmethod
    def shown(self) -> str:
        """The place's path or address, for people."""

    @abstractmethod
    def path(self, number: int) -> Path | str:
        """Return a file's path or address, for people."""

    @abstractmethod
    def read(self, number: int, offset: int, length: int) -> bytes:
        """See `Files`."""

    @abstractmethod
    def open(self, number: int) -> IO[bytes]:
        """See `Files`."""

    @abstractmethod
    def only(self, numbers: Sequence[int]) -> Self:
        """Return some of the files."""

    @abstractmethod
    def check(self, number: int) -> None:
        """Check that a file is the one that was listed.

        Raises:
            DatasetError: it is not, or cannot be looked at.
        """

    @abstractmethod
    def identity(self) -> bytes:
        """Return what identifies all files as they are now.

        Raises:
            DatasetError: one is not the one that was listed, or cannot be looked at.
        """

    @abstractmethod
    def is_same(self, other: "Store") -> bool:
        """Return whether another one has the same files of the same place, one by one."""

    @abstractmethod
    def columns(self, numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Return what an index stores of these files: names, sizes and identities."""

    @abstractmethod
    def same(self, arrays: Mapping[str, npt.NDArray[Any]], old: slice, numbers: npt.NDArray[np.int64]) -> bool:
        """Return whether these files are those that an earlier index stored at `old`."""

    @abstractmethod
    def close(self) -> None:
        """Close the place. Closing again does nothing."""
