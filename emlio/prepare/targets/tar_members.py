"""The members of an item in a WebDataset tar.

    jpg, png, webp, ...   the picture, by its first bytes
    cls                   the label, a whole number in decimal digits
    txt                   text, also decimal numbers of any precision
    json                  numbers, true and false, null, lists, objects; NaN and Infinity as Python writes them
    npy                   arrays, spans of time
    bin                   other bytes, if nothing says what they are

The column that is the whole item has just such a name; others have their own before it, as in
`caption.txt`. A column that already has a name of WebDataset keeps it. All items have one name for a
column, whatever its values are.

Covers: names and bytes of members. Does not cover: keys and headers
(emlio.prepare.targets.tar_record).
"""

import io
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, Final, cast

import numpy as np
from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.images.header import IMAGE_EXTENSIONS, picture_extension, read_image_header
from emlio.prepare.sample import Sample

__all__ = ["members_of", "picture_columns"]

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
