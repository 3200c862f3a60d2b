"""The contract that all formats fulfil."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import IO, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.record_form import RowForm

__all__ = ["Files", "Format", "GroupFormat", "Layout", "Ranges", "ShardFiles", "TopFormat"]


class Files(Protocol):
    """The files below a folder, by number, in the order of the tree; hidden ones are not among them."""

    @property
    def names(self) -> Sequence[str]:
        """Their paths in the folder."""
        ...

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Their sizes in bytes."""
        ...

    @property
    def endings(self) -> Mapping[str, int]:
        """Numbers of files by what follows the last dot of their names, in lower case, with the dot."""
        ...

    def path(self, number: int) -> object:
        """Return a file's path or address, for people."""
        ...

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Return bytes of a file; fewer only at its end.

        Raises:
            DatasetError: the file cannot be read.
        """
        ...

    def open(self, number: int) -> "IO[bytes]":
        """Open a file for reading without a buffer; the caller closes it.

        Raises:
            DatasetError: the file cannot be opened.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFiles:
    """The files of one shard.

    Attributes:
        name: of the shard, unique in the dataset.
        files: their numbers. The first holds the records, others say where they are; or each one
            is a record.
        whole_files: whether each file is a record.
        unpacked: whether each of these records is made of its file, see `GroupFormat`.
    """

    name: str
    files: Sequence[int]
    whole_files: bool = False
    unpacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The division of a folder into shards.

    Attributes:
        shards: sorted by name.
        settings: see `Contents`.
        label_names: class names by label; empty if there are none.
        labels: the label of each file of the folder, by number, where each file is a record and
            has one.
        told: whether ranks are told the path, and the label, of each file.
        schema: see `Contents`.
        missing: names of shards that must be on other hosts.
    """

    shards: tuple[ShardFiles, ...]
    settings: bytes = b""
    label_names: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    labels: npt.NDArray[np.int32] | None = None
    told: bool = False
    schema: Mapping[str, FieldType] = field(default_factory=lambda: MappingProxyType({}))
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranges:
    """The records of one file.

    Attributes:
        starts: (n,) the byte at which each begins.
        ends: (n,) the byte after its last one.
        digest: of their content, if the format has one; by default it is made of a shard's names,
            sizes and ranges.
        groups: (groups, 2) if records are no ranges of the file but of what a `GroupFormat` makes of
            it, group by group: the first record of each, and its place as the format knows it.
        framed: whether each range is a record in a frame with its checksums, see `emlio.tfrecord`.
    """

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    digest: str = ""
    groups: npt.NDArray[np.int64] | None = None
    framed: bool = False


_TEXTS: Final = (".json", ".md", ".txt", ".yaml", ".yml", ".lock", "")
"""Endings of files that lie beside shards: a README, a licence, what Hugging Face's datasets stores."""

_MOST_TEXTS: Final = 16
"""More of them are records, whatever their names."""


@dataclass(frozen=True, kw_only=True)
class Format(ABC):
    """One format. Holds no state, so that threads may share it.

    Attributes:
        name: as users write it.
        words: what it is, for lists of formats.
        options: the options that it takes, with what each means.
        extensions: what the names of its files end with, in lower case; none if other things tell.
        texts: whether a few texts beside its files are about them, such as a README, and no records.
    """

    name: str
    words: str
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    extensions: tuple[str, ...] = ()
    texts: bool = False

    def claims(self, files: Files) -> bool:
        """Return whether a folder with these files is taken for one of this format.

        By default if half of them are its, or all but a few texts.
        """
        count, about = (sum(files.endings.get(one, 0) for one in kinds) for kinds in (self.extensions, _TEXTS))
        about = about if self.texts and about <= _MOST_TEXTS else 0
        return count > 0 and (2 * count >= len(files.names) or count + about == len(files.names))

    def own_files(self, files: Files, where: str) -> list[tuple[str, int]]:
        """Return the names and numbers of the files with its extensions, sorted.

        Raises:
            DatasetError: there is none.
        """
        found = sorted(
            (name, number) for number, name in enumerate(files.names) if name.lower().endswith(self.extensions)
        )
        if not found:
            raise DatasetError(f"dataset directory {where}: must hold {self.extensions[0]} files, holds none")
        return found

    @abstractmethod
    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """Return the shards of a folder.

        Args:
            files: the folder's files.
            options: the user's, all of them known.
            where: the folder, for errors.

        Raises:
            DatasetError: it has none, or its files are invalid.
        """

    @abstractmethod
    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """Return the records of a shard that is one file.

        Raises:
            DatasetError: the file is invalid.
        """

    @abstractmethod
    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """Return what makes columns of records, at the rank.

        Args:
            contents: what the daemon says of the dataset.
            fields: the columns wanted; None for all.

        Raises:
            ConfigError: there is no such column.
            DatasetError: the contents' settings are not valid.
        """


@runtime_checkable
class TopFormat(Protocol):
    """A format whose files lie at the top and are known by their names, so that no others are looked at."""

    def owns(self, name: str) -> bool:
        """Return whether a file of this name may be of the format."""
        ...

    def describes(self, name: str) -> bool:
        """Return whether such a file holds no records, but says something about them."""
        ...


@runtime_checkable
class GroupFormat(Protocol):
    """A format whose records are made of groups of a file, such as the row groups of a table.

    Where a record is made of a file of its own, that file is one group.
    """

    def common(self, file: "IO[bytes]", where: str) -> object:
        """Return what all groups of a file need, to be read once; never None.

        Raises:
            DatasetError: it cannot be read.
        """
        ...

    def unpack(
        self, file: "IO[bytes]", place: int, settings: bytes, where: str, common: object
    ) -> npt.NDArray[np.uint8]:
        """Return the bytes of a group's records, one after the other.

        Args:
            file: the file, which can be sought; it stays open.
            place: of the group, as in `Ranges`.
            settings: see `Contents`.
            where: the file's path, for errors.
            common: what `common` returned for this file.

        Raises:
            DatasetError: the group cannot be read.
        """
        ...
