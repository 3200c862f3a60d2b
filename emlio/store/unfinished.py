"""Folders in which an `emlio.Writer` has not finished: all files of the data are hidden there.

Covers: the names of the files that say so, finding them. Does not cover: what is in them
(emlio.prepare.writing.part_files).
"""

from pathlib import Path
from typing import Final

__all__ = ["FINISHING", "UNFINISHED", "WRITING", "is_unfinished"]

WRITING: Final = ".writing.json"
FINISHING: Final = ".finishing.json"

UNFINISHED: Final = (
    "an emlio.Writer has not finished this dataset. If the writer does not run any more, make it again for the same "
    "folder: it continues after its finished shards"
)
"""The end of the error on such a folder."""


def is_unfinished(folder: Path) -> bool:
    """Return whether a writer has begun a dataset in a folder and has not finished it."""
    return any((folder / name).is_file() for name in (WRITING, FINISHING))
