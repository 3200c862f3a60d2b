"""WebDataset tars: members that share a name up to the first dot are a record.

A record is the range from its first member's header to its last member's end, so a rank finds names
and lengths in the record itself, and checks each header's own checksum. Tars may have the forms of
POSIX and GNU, with long names; members of compressed tars have no place in the file, and sparse
ones are refused.
"""

import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType, sampled
from emlio.formats.each_record import IMAGE, LABEL, EachRecord
from emlio.formats.format import Files, Format, Layout, Ranges, ShardFiles
from emlio.formats.record_form import RowForm
from emlio.images.header import IMAGE_EXTENSIONS

__all__ = ["WebDatasetTars", "key_and_extension", "tars"]

_BLOCK: Final = 512
_KEY: Final = "__key__"
_REGULAR: Final = (b"0", b"\0", b"7")
_LONG_NAME: Final = b"L"
_LONG_LINK: Final = b"K"
_EXTENDED: Final = (b"x", b"X")
_GLOBAL: Final = b"g"
_SPARSE: Final = b"S"
_WITHOUT_DATA: Final = (b"1", b"2", b"3", b"4", b"5", b"6")
"""Links, devices, folders and FIFOs: nothing follows their header, whatever size it says."""

_META: Final = re.compile(r"__[^/]*__($|/)")
"""Names that WebDataset keeps for itself, and leaves out of samples."""

_MOST_DIGITS: Final = 20
_SAMPLED_TARS: Final = 8
_SAMPLED_BYTES: Final = 1 << 18
_MOST_HEADERS: Final = 256
_MOST_HEADER_BYTES: Final = 1 << 16
"""The limits of what is read of a tar to learn its columns."""

_AFTER_END_BYTES: Final = 1 << 16
"""The bytes after the end mark in which a second tar is looked for: tools pad to 10 KiB."""


class WebDatasetTars(Format):
    """See `Format`."""

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        shards = self.own_files(files, where)
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(number,)) for name, number in shards),
            schema=_sampled_schema(files, [number for _, number in shards]),
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        (number,) = shard.files
        path = files.path(number)
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
                        raise DatasetError(f"{path}: {member.name}: must not be sparse; pack it without --sparse")
                    if not member.isreg():
                        continue
                    of, extension = key_and_extension(member.name)
                    if not extension:
                        continue
                    if of != key:
                        key, seen = of, set()
                        starts.append(member.offset)
                        ends.append(0)
                    if extension in seen:
                        raise DatasetError(
                            f"{path}: record {len(starts) - 1}: must have each member once, {member.name} is there "
                            "twice"
                        )
                    seen.add(extension)
                    ends[-1] = member.offset_data + member.size
                end = archive.offset
        except (tarfile.TarError, OSError, EOFError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise DatasetError(f"{path}: must be an uncompressed tar file: {error}") from error
        _check_end(files, number, end, max(ends, default=0))
        return Ranges(starts=np.array(starts, np.int64), ends=np.array(ends, np.int64))

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        return EachRecord(_read, fields, _aliases)


def _sampled_schema(files: Files, numbers: Sequence[int]) -> Mapping[str, FieldType]:
    """Return the columns of the first records of some tars, as far as they can be read; other records may have others."""
    columns = {_KEY: FieldType("str")}
    for number in numbers[:: -(-len(numbers) // _SAMPLED_TARS)]:
        head = files.read(number, 0, _SAMPLED_BYTES)
        try:
            for extension in _extensions(files, number, head):
                columns[extension] = FieldType("bytes")
        except DatasetError:
            pass  # what is wrong is said where the records are looked for
    return sampled(columns)


def _extensions(files: Files, number: int, head: bytes) -> Iterator[str]:
    """Yield the extensions of a tar's members: of the first record, and of others in its first bytes."""
    key: str | None = None
    at, long_name, extended = 0, "", dict[str, str]()
    for _ in range(_MOST_HEADERS):
        header = head[at : at + _BLOCK] if at + _BLOCK <= len(head) else files.read(number, at, _BLOCK)
        if len(header) < _BLOCK or not any(header):
            return
        _check_sum(header, at)
        kind = header[156:157]
        size = 0 if kind in _WITHOUT_DATA else _size(header, extended)
        if size < 0:
            return
        if kind == _LONG_NAME or kind in _EXTENDED:
            told = files.read(number, at + _BLOCK, min(size, _MOST_HEADER_BYTES))
            long_name, extended = (_text(told), extended) if kind == _LONG_NAME else (long_name, _extended(told))
        elif kind not in (_LONG_LINK, _GLOBAL):
            of, extension = key_and_extension(extended.get("path") or long_name or _name(header))
            if kind in _REGULAR and extension:
                key = of if key is None else key
                if of != key and at >= len(head):
                    return
                yield extension
            long_name, extended = "", {}
        at += _BLOCK + size + -size % _BLOCK


def _check_end(files: Files, number: int, end: int, last: int) -> None:
    """Check that a tar ends as it must.

    Python's module takes a broken header, and the end of a file that is cut off, for the end of the tar.

    Args:
        files: the folder's files.
        number: the file.
        end: where the last member is followed by the end mark.
        last: where the last record ends.

    Raises:
        DatasetError: it is cut off or corrupt, or another tar follows.
    """
    name, size = files.path(number), int(files.sizes[number])
    if last > size:
        raise DatasetError(f"{name}: its last record must end within its {size} bytes, ends at {last}: it is cut off")
    rest = files.read(number, end, _AFTER_END_BYTES)
    mark = rest[:_BLOCK]
    if any(mark):
        raise DatasetError(f"{name}: must have a member or the end mark at byte {end}, has neither: it is corrupt")
    if len(mark) < _BLOCK:
        raise DatasetError(
            f"{name}: must have an end mark at byte {end}, ends at {size}: it is cut off. If it is known to be whole, "
            f"append the mark: truncate -s {end + 2 * _BLOCK} {name}"
        )
    for at in range(0, len(rest) - _BLOCK + 1, _BLOCK):
        block = rest[at : at + _BLOCK]
        if any(block):
            if _has_checksum(block):
                raise DatasetError(
                    f"{name}: must be one tar, another one begins at byte {end + at}, after the end mark of the first: "
                    "its records would be lost. Join tars with tar --concatenate"
                )
            return  # padding


def _has_checksum(block: bytes) -> bool:
    try:
        _check_sum(block, 0)
    except DatasetError:
        return False
    return True


def key_and_extension(name: str) -> tuple[str, str]:
    """Return a member's key, and what follows the first dot of its name; nothing for members of no record."""
    folder, slash, file = name.rpartition("/")
    stem, _, extension = file.partition(".")
    if not stem or not extension or _META.match(name):
        return name, ""
    return folder + slash + stem, extension.lower()


def _read(view: memoryview, note: bytes) -> Mapping[str, Any]:
    row: dict[str, Any] = {}
    key = ""
    for name, data in _members(view):
        of, extension = key_and_extension(name)
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
        size = 0 if kind in _WITHOUT_DATA else _size(header, extended)
        begin, end = at + _BLOCK, at + _BLOCK + size
        if size < 0 or end > len(view):
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


def _size(header: bytes, extended: Mapping[str, str]) -> int:
    text = extended.get("size")
    if text is None:
        return _number(header[124:136])
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise DatasetError(f"a size in an extended tar header must be a number, got {text[:40]!r}")
    return int(text)


def _check_sum(header: bytes, at: int) -> None:
    stored = _number(header[148:156])
    counted = header[:148] + header[156:]
    computed = sum(counted) + 8 * ord(" ")
    # Old programs added signed bytes.
    if stored != computed and stored != computed - 256 * sum(byte > 127 for byte in counted):
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
        if not length.isdigit() or len(length) > _MOST_DIGITS or not len(length) < int(length) <= len(records):
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


tars = WebDatasetTars(
    name="tar", words="WebDataset tars, the members of one name a record", extensions=(".tar",), texts=True
)
