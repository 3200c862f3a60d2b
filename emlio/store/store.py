"""The files of a dataset in one place: the contract of folders and buckets."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from emlio.formats.format import Files

__all__ = ["Store"]


class Store(Files, Protocol):
    """The files of a place, by number, and what identifies the content of each. Thread-safe."""

    @property
    def shown(self) -> str:
        """The place's path or address, for people."""
        ...

    @property
    def remote(self) -> bool:
        """True if each read is a request to a server."""
        ...

    @property
    def unwritten(self) -> Sequence[str]:
        """The columns, see `columns`, that stay the same as long as nothing writes to a file on purpose."""
        ...

    @property
    def passed_over(self) -> Sequence[str]:
        """Links that are not followed."""
        ...

    @property
    def junk(self) -> Sequence[str]:
        """Files and folders that are no data, and not among the files."""
        ...

    def path(self, number: int) -> Path | str:
        """Return a file's path or address, for people."""
        ...

    def __len__(self) -> int:
        """The number of files."""
        ...

    def size_bytes(self, number: int) -> int:
        """Return a file's size."""
        ...

    def only(self, numbers: Sequence[int]) -> "Store":
        """Return some of the files."""
        ...

    def top(self, owns: Callable[[str], bool]) -> "Store":
        """Return the files at the top that have such names."""
        ...

    def check(self, number: int) -> None:
        """Check that a file is the one that was listed.

        Raises:
            DatasetError: it is not, or cannot be looked at.
        """
        ...

    def identity(self) -> bytes:
        """Return what identifies all files as they are now.

        Raises:
            DatasetError: one is not the one that was listed, or cannot be looked at.
        """
        ...

    def is_same(self, other: "Store") -> bool:
        """Return whether another one has the same files of the same place, one by one."""
        ...

    def missing(self, name: str) -> str:
        """Return the name of a file that is not here, with why, for people."""
        ...

    def columns(self, numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Return what an index stores of these files: names, sizes and identities."""
        ...

    def same(self, arrays: Mapping[str, npt.NDArray[Any]], old: slice, numbers: npt.NDArray[np.int64]) -> bool:
        """Return whether these files are those that an earlier index stored at `old`."""
        ...

    def close(self) -> None:
        """Close the place. Closing again does nothing."""
        ...
