"""Making the records of one group of a file, such as a row group of a table."""

import io
from collections import OrderedDict
from threading import Lock

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.registry import group_format
from emlio.index.dataset import Dataset
from emlio.index.groups import Group

__all__ = ["GroupMaker"]

_MOST_FILES = 64
"""Files of which what all their groups need, such as a table's footer, is kept."""


class GroupMaker:
    """Makes the groups of a dataset. Thread-safe."""

    def __init__(self, dataset: Dataset) -> None:
        """See the class; the dataset is one of groups."""
        maker = group_format(dataset.contents)
        if maker is None:
            raise AssertionError(f"format {dataset.contents.format} has no groups")
        self._dataset = dataset
        self._format = maker
        self._common: OrderedDict[int, object] = OrderedDict()
        self._lock = Lock()

    def make(self, group: Group, opened: io.RawIOBase) -> npt.NDArray[np.uint8]:
        """Return the bytes of a group's records, one after the other.

        Args:
            group: one of the dataset's groups.
            opened: its file, found unchanged since it was indexed; closed.

        Raises:
            DatasetError: the file cannot be read, or has other records than when it was indexed.
        """
        path, settings = str(self._dataset.files.path(group.file)), self._dataset.contents.settings
        with io.BufferedReader(opened) as file:
            with self._lock:
                common = self._common.get(group.file)
            if common is None:
                common = self._format.common(file, path)
                with self._lock:
                    self._common[group.file] = common
                    while len(self._common) > _MOST_FILES:
                        self._common.popitem(last=False)
            made = self._format.unpack(file, group.place, settings, path, common)
        if len(made) != group.size_bytes:
            raise DatasetError(
                f"{path}: must be as it was when it was indexed, with {group.size_bytes} bytes of records in this group, "
                f"has {len(made)}"
            )
        return made
