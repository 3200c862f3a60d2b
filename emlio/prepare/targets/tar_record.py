"""Items as members of a tar, with keys that readers of WebDataset take apart again.

Covers: keys, headers of members, the items of one shard. Does not cover: what members an item has
(emlio.prepare.targets.tar_members), the file (emlio.prepare.targets.tar_shard).
"""

import re
import tarfile
from collections.abc import Iterable, Mapping
from typing import Final

from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.formats.path_text import path_bytes
from emlio.formats.tar import key_and_extension
from emlio.prepare.sample import Sample
from emlio.prepare.targets.example_sample import sample_of_example
from emlio.prepare.targets.record import Record
from emlio.prepare.targets.tar_members import members_of

__all__ = ["TarRecords", "key_of_path"]

_META: Final = re.compile(r"__[^/]*__($|/)")
"""Names that WebDataset keeps for itself."""

_MOST_PATH_BYTES: Final = 4095
_MOST_NAME_BYTES: Final = 255
"""The limits of file systems, so that the tars can be unpacked."""

_MODE: Final = 0o644
_REMEDY: Final = "Number the samples instead: --keys numbers"


class TarRecords:
    """Makes the records of one shard, in their order. It belongs to one thread."""

    def __init__(self, *, numbered: bool, pictures: Mapping[str, str] | None = None) -> None:
        """Begin a shard.

        Args:
            numbered: whether keys are the numbers of items, also where the source has names.
            pictures: see `members_of`; by default other columns of bytes are no pictures.
        """
        self._numbered = numbered
        self._pictures = pictures or {}
        self._seen: dict[str, int] = {}

    @property
    def keys(self) -> Iterable[str]:
        """The keys of the records so far."""
        return self._seen.keys()

    def record(self, sample: Sample, place: int) -> Record:
        """Return the record of an item.

        Args:
            sample: the item.
            place: its number in the source.

        Raises:
            DatasetError: it has no members, its key is that of an earlier record of the shard, or a
                name cannot be used.
        """
        if sample.record is not None:
            sample = sample_of_example(sample.record)
        key = f"{place:09d}" if self._numbered else sample.key or key_of_path(sample.path) or f"{place:09d}"
        if key in self._seen:
            raise DatasetError(
                f"must have a key of its own among the samples of a shard, item {self._seen[key]} has {key!r}, too. "
                f"{_REMEDY}"
            )
        parts: list[Buffer] = []
        for extension, data in members_of(sample, self._pictures).items():
            size = len(memoryview(data))
            parts += (_header(key, extension, size), data, bytes(-size % tarfile.BLOCKSIZE))
        self._seen[key] = place
        return Record(parts=tuple(parts), label=sample.label)


def key_of_path(path: str) -> str:
    """Return the key for a file: its path without the extension, made so that readers take it as one.

    Dots in the file's name become underscores: readers end the key at the first one.
    """
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    if not parts:
        return ""
    *folders, file = parts
    stem = file.rpartition(".")[0] or file
    key = "/".join((*folders, stem.replace(".", "_"))).replace("\0", "_").replace("\n", "_")
    while _META.match(key):
        key = key[1:]
    return key


def _header(key: str, extension: str, size_bytes: int) -> bytes:
    name = f"{key}.{extension}"
    if key_and_extension(name) != (key, extension) or "\n" in name:
        raise DatasetError(f"must have members that readers of WebDataset take apart, got {name!r}. {_REMEDY}")
    if name.startswith("/") or ".." in name.split("/"):
        raise DatasetError(
            f"must have members that stay below the folder they are unpacked in, got {name!r}. {_REMEDY}"
        )
    raw = path_bytes(name)
    if len(raw) > _MOST_PATH_BYTES or max(map(len, raw.split(b"/"))) > _MOST_NAME_BYTES:
        raise DatasetError(
            f"must have members of at most {_MOST_NAME_BYTES} bytes in each part of the path and {_MOST_PATH_BYTES} "
            f"together, got {name[:80]!r}... with {len(raw)}. {_REMEDY}, or rename the column"
        )
    header = tarfile.TarInfo(name)
    header.size = size_bytes
    header.mode = _MODE
    # Plain USTAR where all fits into it, an extended header before it else.
    return header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
