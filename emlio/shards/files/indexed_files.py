"""The files that an index is made of, in a folder or in a bucket.

Covers: the contract. Does not cover: the two places (emlio.shards.files.tree, emlio.shards.objects.bucket),
indexing (emlio.shards.opening.ranged_dataset).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from emlio.formats.format import Files

__all__ = ["IndexedFiles"]


class IndexedFiles(Files, Protocol):
    """The files of a place, by number, and what identifies each of them."""

    @property
    def passed_over(self) -> Sequence[str]:
        """Links that are not followed."""
        ...

    @property
    def junk(self) -> Sequence[str]:
        """Files and folders that are no data, and not among the files."""
        ...

    def path(self, number: int) -> object:
        """Return a file's path or address, for people."""
        ...

    def columns(self, numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Return what an index stores of these files: names, sizes and identities."""
        ...

    def same(self, arrays: Mapping[str, npt.NDArray[Any]], old: slice, numbers: npt.NDArray[np.int64]) -> bool:
        """Return whether these files are those that an earlier index stored at `old`."""
        ...
