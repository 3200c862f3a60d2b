"""Items as members of a tar, with keys that readers of WebDataset take apart again."""

import io
import json
import re
import tarfile
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, Final, cast

import numpy as np
from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.formats.path_text import path_bytes
from emlio.formats.tar import key_and_extension
from emlio.images.header import IMAGE_EXTENSIONS, picture_extension, read_image_header
from emlio.prepare.sample import Sample
from emlio.prepare.targets.example_form import sample_of_example
from emlio.prepare.targets.tally import Record

__all__ = ["TarRecords", "key_of_path", "members_of", "picture_columns"]

_KNOWN: Final = IMAGE_EXTENSIONS | {
    "avi", "bin", "cbor", "csv", "flac", "gz", "h264", "html", "jsn", "json", "m4a", "mjpeg", "mov", "mp3", "mp4", "mpeg",
    "mpg", "npy", "npz", "ogg", "ogv", "pbm", "pdf", "pnm", "text", "transcript", "txt", "wav", "webm", "wma", "wmv", "xml",
    "yaml",
}  # fmt: skip
"""Kinds of files: bytes in a column of such a name are one. Other names that WebDataset decodes are left out: as that of a
column, `id` need not be a number, and pickles are decoded only where the user made tars with them.
"""

_BYTES: Final = (memoryview, bytes, bytearray)
_DIVIDING: Final = re.compile(r"[/\0\n]")

_CHECKED: Final = frozenset({"", "jpg", "png"})
"""Pictures whose header is read, as for other targets. Others would need Pillow, which a copy does without."""


def picture_columns(sample: Sample) -> dict[str, str]:
    """Return the extensions of pictures in columns of bytes that are parts of the item; "" for other bytes."""
    views: dict[str, Any] = {name: value for name, value in sample.columns.items() if name != sample.main}
    return {
        name: picture_extension(cast("Buffer", value)) for name, value in views.items() if isinstance(value, _BYTES)
    }


def members_of(sample: Sample, pictures: Mapping[str, str]) -> Mapping[str, Buffer]:
    """Return the members of an item by extension, in the order of the tar.

        jpg, png, webp, ...   the picture, by its first bytes
        cls                   the label, a whole number in decimal digits
        txt                   text, also decimal numbers of any precision
        json                  numbers, true and false, null, lists, objects; NaN and Infinity as Python writes them
        npy                   arrays, spans of time
        bin                   other bytes, if nothing says what they are

    The column that is the whole item has just such a name; others have their own before it, as in
    `caption.txt`. A column that already has a name of WebDataset keeps it. All items have one name for a
    column, whatever its values are.

    Args:
        sample: the item.
        pictures: the extension of the pictures in a column of bytes, by column, the same for all items.

    Raises:
        DatasetError: it has no members, two columns of one name, or a value that no member can
            hold.
    """
    if sample.members is not None:
        return sample.members
    members: dict[str, Buffer] = {}
    columns: dict[str, str] = {}

    def add(column: str, extension: str, data: Buffer) -> None:
        if extension in members:
            raise DatasetError(
                f"the columns {columns[extension]!r} and {column!r} must have members of different names, both would be "
                f".{extension}. Rename one"
            )
        members[extension], columns[extension] = data, column

    if sample.picture is not None:
        add("picture", _picture(sample.picture, sample.filename), sample.picture)
    if sample.label is not None:
        add("label", "cls", b"%d" % sample.label)
    for column, value in sample.columns.items():
        try:
            kind, data = _encoded(value)
        except (ValueError, TypeError) as error:
            raise DatasetError(f"column {column!r} must have a form in a tar, got {value!r:.80}: {error}") from error
        if column == sample.main:
            add(column, _content(data, sample.filename) if kind == "bin" else kind, data)
        else:
            add(column, _named(column, pictures.get(column) or kind if kind == "bin" else kind), data)
    if not members:
        raise DatasetError("has no members: an item of a WebDataset must have at least one column besides its key")
    return members


def _picture(picture: Buffer, filename: str) -> str:
    extension = picture_extension(picture)
    if extension in _CHECKED:
        read_image_header(bytes(picture))
    return extension or _extension(filename) or "bin"


def _content(data: Buffer, filename: str) -> str:
    """Return the extension of an item that is bytes: a file has one already."""
    return _extension(filename) or picture_extension(data) or "bin"


def _extension(filename: str) -> str:
    return _plain(PurePosixPath(filename).suffix[1:])


def _named(column: str, kind: str) -> str:
    """Return the extension of a column that is a part of its item."""
    name = _plain(column)
    last = name.rpartition(".")[2]
    # Bytes of a known kind have its name already.
    return name if last == kind or (kind in ("bin", *IMAGE_EXTENSIONS) and last in _KNOWN) else f"{name}.{kind}"


def _plain(name: str) -> str:
    """Return a name as readers will have it: in small letters, without what divides paths."""
    return _DIVIDING.sub("_", name.lower())


def _is_plain(value: Any) -> bool:
    """Return whether JSON can hold a number of NumPy's: spans of time have a unit."""
    return not isinstance(value, np.timedelta64) and isinstance(value.item(), int | float)


def _encoded(value: Any) -> tuple[str, Buffer]:
    """Return the kind of a column's member, and its bytes."""
    match value:
        case memoryview() | bytes() | bytearray():
            return "bin", cast("Buffer", value)
        case str():
            return "txt", value.encode("utf-8", "surrogateescape")
        case Decimal():
            return "txt", str(value).encode()
        case np.bool_() | np.integer() | np.floating() if _is_plain(cast("Any", value)):
            return "json", json.dumps(cast("Any", value).item()).encode()
        case np.generic() | np.ndarray():
            file = io.BytesIO()
            np.save(file, np.asarray(cast("Any", value)), allow_pickle=False)
            return "npy", file.getvalue()
        case _:
            return "json", json.dumps(value).encode()


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
