"""WebDataset tars: members that share a name up to the first dot are a record.

A record is the range from its first member's header to its last member's end, so a rank finds names
and lengths in the record itself, and checks each header's own checksum.

Covers: uncompressed tars in the forms of POSIX and GNU, with long names. Does not cover: compressed
tars, whose members have no place in the file; sparse members.
"""

import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.each_record import IMAGE, LABEL, EachRecord
from emlio.formats.format import Files, Layout, Ranges, ShardFiles
from emlio.formats.record_form import RecordForm
from emlio.formats.whole_file import mostly
from emlio.images.header import IMAGE_EXTENSIONS

__all__ = ["WebDatasetTars", "tars"]

_BLOCK: Final = 512
_KEY: Final = "__key__"
_REGULAR: Final = (b"0", b"\0", b"7")
_LONG_NAME: Final = b"L"
_LONG_LINK: Final = b"K"
_EXTENDED: Final = (b"x", b"X")
_GLOBAL: Final = b"g"
_SPARSE: Final = b"S"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDatasetTars:
    """See `Format`.

    Attributes:
        name: see `Format`.
        words: see `Format`.
        options: see `Format`.
    """

    name: str = "tar"
    words: str = "WebDataset tars, the members of one name a record"
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def claims(self, files: Files) -> bool:
        """See `Format`."""
        return mostly(files, ".tar")

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        numbers = [number for number, name in enumerate(files.names) if name.lower().endswith(".tar")]
        if not numbers:
            raise DatasetError(f"dataset directory {where}: must hold .tar files, holds none")
        shards = sorted((files.names[number], number) for number in numbers)
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(number,)) for name, number in shards),
            schema={_KEY: FieldType("str")},
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        (number,) = shard.files
        starts: list[int] = []
        ends: list[int] = []
        key: str | None = None
        seen: set[str] = set()
        try:
            with files.open(number) as file, tarfile.open(fileobj=file, mode="r:") as archive:
                while (member := archive.next()) is not None:
                    # The module keeps every member, gigabytes for millions of them.
                    vars(archive)["members"].clear()
                    if member.issparse():
                        raise DatasetError(f"{shard.name}: {member.name}: must not be sparse; pack it without --sparse")
                    if not member.isreg():
                        continue
                    of, extension = _key_and_extension(member.name)
                    if not extension:
                        continue
                    if of != key:
                        key, seen = of, set()
                        starts.append(member.offset)
                        ends.append(0)
                    if extension in seen:
                        raise DatasetError(
                            f"{shard.name}: record {len(starts) - 1}: must have each member once, {member.name} is there "
                            "twice"
                        )
                    seen.add(extension)
                    ends[-1] = member.offset_data + member.size
                end = archive.offset
        except (tarfile.TarError, OSError, EOFError, ValueError) as error:
            raise DatasetError(f"{shard.name}: must be an uncompressed tar file: {error}") from error
        size = int(files.sizes[number])
        # The module takes a broken header in the middle for the end, without an error.
        if any(files.read(number, end, _BLOCK)):
            raise DatasetError(
                f"{shard.name}: must have a member or the end mark at byte {end}, has neither: it is corrupt"
            )
        if ends and max(ends) > size:
            raise DatasetError(
                f"{shard.name}: record {len(ends) - 1} must end within the file's {size} bytes, ends at {max(ends)}: the "
                "file is cut off"
            )
        return Ranges(starts=np.array(starts, np.int64), ends=np.array(ends, np.int64))

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RecordForm:
        """See `Format`."""
        return EachRecord(_read, fields, _aliases)


def _key_and_extension(name: str) -> tuple[str, str]:
    """Return a member's key, and what follows the first dot of its name; nothing for others."""
    folder, _, file = name.rpartition("/")
    stem, _, extension = file.partition(".")
    if not stem or not extension:
        return name, ""
    return f"{folder}/{stem}" if folder else stem, extension.lower()


def _read(view: memoryview, note: bytes) -> Mapping[str, Any]:
    row: dict[str, Any] = {}
    key = ""
    for name, data in _members(view):
        of, extension = _key_and_extension(name)
        if extension:
            key = key or of
            row[extension] = data
    row[_KEY] = key
    return row


def _members(view: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yield the names and bytes of the regular files among a range's members."""
    at, long_name, extended = 0, "", dict[str, str]()
    while at + _BLOCK <= len(view):
        header = bytes(view[at : at + _BLOCK])
        _check_sum(header, at)
        kind = header[156:157]
        size = int(extended["size"]) if "size" in extended else _number(header[124:136])
        begin, end = at + _BLOCK, at + _BLOCK + size
        if end > len(view):
            raise DatasetError(f"must be whole members of a tar, the one at byte {at} ends at {end} of {len(view)}")
        if kind == _LONG_NAME:
            long_name = _text(bytes(view[begin:end]))
        elif kind in _EXTENDED:
            extended = _extended(bytes(view[begin:end]))
        elif kind not in (_LONG_LINK, _GLOBAL):
            if kind in _REGULAR:
                yield extended.get("path") or long_name or _name(header), view[begin:end]
            long_name, extended = "", {}
        at = end + -size % _BLOCK


def _check_sum(header: bytes, at: int) -> None:
    stored = _number(header[148:156])
    computed = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if stored != computed:
        raise DatasetError(f"the tar header at byte {at} must have the checksum {stored}, has {computed}")


def _number(text: bytes) -> int:
    if text[:1] in (b"\x80", b"\xff"):
        return int.from_bytes(text[1:], "big", signed=text[:1] == b"\xff")
    try:
        return int(text.split(b"\0", 1)[0].strip() or b"0", 8)
    except ValueError as error:
        raise DatasetError(f"a number in a tar header must be octal, got {text!r}") from error


def _name(header: bytes) -> str:
    name = _text(header[:100])
    if header[257:263] == b"ustar\0" and header[345:346] != b"\0":
        return f"{_text(header[345:500])}/{name}"
    return name


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _extended(records: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    while records:
        length = records.partition(b" ")[0]
        if not length.isdigit() or not len(length) < int(length) <= len(records):
            raise DatasetError("an extended tar header must be records of LENGTH NAME=VALUE")
        keyword, _, value = records[len(length) + 1 : int(length) - 1].partition(b"=")
        found[keyword.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        records = records[int(length) :]
    return found


def _aliases(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    image = next((name for name in row if name in IMAGE_EXTENSIONS), None)
    if image is not None:
        found[IMAGE] = row[image]
    if "cls" in row:
        text = bytes(row["cls"]).strip()
        try:
            found[LABEL] = np.int64(int(text))
        except (ValueError, OverflowError) as error:
            raise DatasetError(f"its .cls must be a whole number, got {text[:40]!r}") from error
    return found


tars = WebDatasetTars()
