"""MosaicML's MDS: shards of samples, described by an index.json of version 2.

    shard:   uint32 samples | uint32 begin of each sample, and of the end | columns as JSON | samples
    sample:  uint32 length of each column without a fixed one | the columns' bytes

All numbers are little-endian.
"""

import struct
from collections.abc import Callable, Container, Mapping, Sequence
from decimal import InvalidOperation
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from emlio.errors import DatasetError
from emlio.formats.contents import Contents
from emlio.formats.each_record import IMAGE, LABEL, EachRecord
from emlio.formats.format import Files, Format, Layout, Ranges, ShardFiles
from emlio.formats.mds_encodings import IMAGES, decoder_of, field_type, size_of
from emlio.formats.record_form import RowForm

__all__ = ["Mds", "mds", "role_columns"]

_INDEX: Final = "index.json"
_LENGTH: Final = struct.Struct("<I")
_MOST_INDEX_BYTES: Final = 256 << 20
"""Of half a million shards, with the columns of each."""

_MOST_COLUMNS: Final = 4096
_LABELS: Final = ("label", "y", "class", "cls")


class _Raw(msgspec.Struct, frozen=True):
    basename: str
    bytes: int | None = None


class _Shard(msgspec.Struct, frozen=True, kw_only=True):
    column_names: Annotated[list[str], msgspec.Meta(min_length=1, max_length=_MOST_COLUMNS)]
    column_encodings: list[str]
    column_sizes: list[int | None]
    raw_data: _Raw
    samples: int
    format: str = "mds"
    compression: str | None = None
    zip_data: _Raw | None = None


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    shards: list[_Shard]


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """An index whose shards are not parsed yet."""

    version: int
    shards: msgspec.Raw


class _Columns(msgspec.Struct, frozen=True, kw_only=True):
    names: list[str]
    encodings: list[str]
    sizes: list[int | None]


class Mds(Format):
    """See `Format`."""

    def claims(self, files: Files) -> bool:
        """See `Format`."""
        number = next(iter(_indexes(files)), None)
        if number is None:
            return False
        if int(files.sizes[number]) > _MOST_INDEX_BYTES:
            return ".mds" in files.endings  # then it is refused, instead of being served as files
        try:
            return msgspec.json.decode(_read(files, number), type=_Head).version == 2
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`. Without an index at the top, those of its folders are taken together."""
        indexes = _indexes(files)
        if not indexes:
            raise DatasetError(f"dataset directory {where}: must hold an {_INDEX}, holds none")
        numbers = {name: data for data, name in enumerate(files.names)}
        shards: dict[str, ShardFiles] = {}
        first: _Columns | None = None
        for number in indexes:
            folder = files.names[number].removesuffix(_INDEX)
            size = int(files.sizes[number])
            if size > _MOST_INDEX_BYTES:
                raise DatasetError(f"{where}: {_INDEX} must have at most {_MOST_INDEX_BYTES:,} bytes, has {size:,}")
            index = _parsed(_read(files, number), f"{where}/{folder}".rstrip("/"))
            first = first or _columns(index.shards[0])
            for shard in index.shards:
                name = folder + shard.raw_data.basename
                if _columns(shard) != first:
                    raise DatasetError(f"{where}: all shards must have the same columns, those of {name} differ")
                if name in shards:
                    raise DatasetError(f"{where}: {_INDEX} must name each shard once, {name} is there twice")
                if name not in numbers:
                    raise DatasetError(f"{where}: {_absence(numbers, folder, shard)}")
                _check_shard(files, numbers[name], shard)
                shards[name] = ShardFiles(name=name, files=(numbers[name], number))
        assert first is not None
        return Layout(
            shards=tuple(shards[name] for name in sorted(shards)),
            settings=msgspec.json.encode(first),
            schema={
                name[:255]: field_type(encoding) for name, encoding in zip(first.names, first.encodings, strict=True)
            },
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        number = shard.files[0]
        size = int(files.sizes[number])
        samples = _samples(files, number)
        table = _LENGTH.size * (samples + 1)
        data = files.read(number, _LENGTH.size, table)
        if len(data) < table:
            raise DatasetError(f"{files.path(number)}: must have the begins of {samples} samples, ends at byte {size}")
        bounds = np.frombuffer(data, "<u4").astype(np.int64)
        begin = _LENGTH.size + table
        if int(bounds[0]) < begin or int(bounds[-1]) != size or (np.diff(bounds) < 0).any():
            raise DatasetError(
                f"{files.path(number)}: its samples must follow each other from byte {begin} or later to {size}, they go from "
                f"{int(bounds[0])} to {int(bounds[-1])}"
            )
        return Ranges(starts=bounds[:-1], ends=bounds[1:])

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        columns = _told(contents.settings)
        wanted = None if fields is None else {*fields} - {IMAGE, LABEL} | _roles(columns, fields)
        decoders = {
            name: decoder_of(name, encoding)
            for name, encoding in zip(columns.names, columns.encodings, strict=True)
            if wanted is None or name in wanted
        }

        def aliases(row: Mapping[str, Any]) -> Mapping[str, Any]:
            return {role: row[name] for role, name in _role_columns(columns).items() if name in row}

        return EachRecord(_Reader(columns, decoders).read, fields, aliases, [*columns.names, *_role_columns(columns)])


class _Reader:
    """Reads samples of these columns."""

    def __init__(self, columns: _Columns, decoders: Mapping[str, Callable[[memoryview], Any]]) -> None:
        self._columns = columns
        self._decoders = decoders
        self._lengths_bytes = _LENGTH.size * sum(not size for size in columns.sizes)

    def read(self, view: memoryview, note: bytes) -> Mapping[str, Any]:
        """Return the columns wanted."""
        lengths_at, at = 0, self._lengths_bytes
        if at > len(view):
            raise DatasetError(f"a sample must have at least {at} bytes, has {len(view)}")
        row: dict[str, Any] = {}
        for name, size in zip(self._columns.names, self._columns.sizes, strict=True):
            if size:
                length = size
            else:
                length = _LENGTH.unpack_from(view, lengths_at)[0]
                lengths_at += _LENGTH.size
            if at + length > len(view):
                raise DatasetError(
                    f"column {name!r} must end within the sample's {len(view)} bytes, ends at {at + length}"
                )
            decode = self._decoders.get(name)
            if decode is not None:
                try:
                    row[name] = decode(view[at : at + length])
                except (ValueError, LookupError, RecursionError, InvalidOperation, struct.error) as error:
                    raise DatasetError(f"column {name!r} cannot be decoded: {str(error)[:200]}") from error
            at += length
        if at != len(view):
            raise DatasetError(f"a sample's columns must fill its {len(view)} bytes, they end at {at}")
        return row


def role_columns(settings: bytes) -> Mapping[str, str]:
    """Return the columns that stand for an encoded image and its label, as far as there are any.

    Raises:
        DatasetError: the settings are not valid.
    """
    return _role_columns(_told(settings))


def _told(settings: bytes) -> _Columns:
    try:
        columns = msgspec.json.decode(settings, type=_Columns)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"MDS must be told with its columns: {error}") from error
    _check_columns(columns, "MDS")
    return columns


def _indexes(files: Files) -> list[int]:
    """Return the numbers of the index at the top, or of those in the folders there."""
    found: list[int] = []
    for number, name in enumerate(files.names):
        if name == _INDEX:
            return [number]
        if "/" not in name:
            continue
        if ".mds" not in files.endings:
            break  # a tree of millions of other files is not searched
        if name.count("/") == 1 and name.endswith(f"/{_INDEX}"):
            found.append(number)
    return found


def _check_shard(files: Files, number: int, shard: _Shard) -> None:
    """Check that a file is the one that the index describes.

    Raises:
        DatasetError: it has another size, or another number of samples.
    """
    name, size, told = shard.raw_data.basename, int(files.sizes[number]), shard.raw_data.bytes
    if told is not None and told != size:
        raise DatasetError(f"{name}: must have {told} bytes as {_INDEX} says, has {size}")
    samples = _samples(files, number)
    if samples != shard.samples:
        raise DatasetError(f"{name}: must hold {shard.samples} samples as {_INDEX} says, holds {samples}")


def _samples(files: Files, number: int) -> int:
    head = files.read(number, 0, _LENGTH.size)
    if len(head) < _LENGTH.size:
        raise DatasetError(f"{files.path(number)}: must begin with the number of its samples, has {len(head)} bytes")
    samples: int = _LENGTH.unpack(head)[0]
    return samples


def _read(files: Files, number: int) -> bytes:
    return files.read(number, 0, int(files.sizes[number]))


def _parsed(text: bytes, where: str) -> _Index:
    try:
        index = msgspec.json.decode(text, type=_Index)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{where}: {_INDEX} must describe MDS shards: {str(error)[:200]}") from error
    if index.version != 2 or not index.shards:
        raise DatasetError(
            f"{where}: {_INDEX} must be of version 2 with a shard at least, is of version {index.version} with "
            f"{len(index.shards)}"
        )
    for shard in index.shards:
        if shard.format != "mds":
            raise DatasetError(f"{where}: shards must be of format mds, {shard.raw_data.basename} is {shard.format}")
        _check_columns(_columns(shard), f"{where}: {shard.raw_data.basename}")
    return index


def _check_columns(columns: _Columns, where: str) -> None:
    """Check that columns are described completely, and that sizes are those of their encodings.

    Raises:
        DatasetError: they are not.
    """
    if not columns.names or not len(columns.names) == len(columns.encodings) == len(columns.sizes):
        raise DatasetError(f"{where} must have an encoding and a size for each column")
    if len(set(columns.names)) != len(columns.names):
        raise DatasetError(f"{where} must have columns of different names, has {columns.names}")
    for name, encoding, size in zip(columns.names, columns.encodings, columns.sizes, strict=True):
        try:
            fixed = size_of(encoding)
        except (ValueError, TypeError, OverflowError) as error:
            raise DatasetError(f"{where}: column {name!r} has an encoding that is not valid, {encoding!r}") from error
        if (size or None) != fixed and (fixed is not None or size is None or size < 0):
            raise DatasetError(f"{where}: column {name!r} of {encoding} must have the size {fixed}, has {size}")


def _columns(shard: _Shard) -> _Columns:
    return _Columns(names=shard.column_names, encodings=shard.column_encodings, sizes=shard.column_sizes)


def _absence(names: Container[str], folder: str, shard: _Shard) -> str:
    name, packed = folder + shard.raw_data.basename, shard.zip_data
    if packed is not None and folder + packed.basename in names:
        return (
            f"shards must be uncompressed to be served, {name} is compressed with {shard.compression}. Convert them once: "
            "emlio convert DIR OUT"
        )
    return f"must hold every shard of {_INDEX}, lacks {name}"


def _role_columns(columns: _Columns) -> dict[str, str]:
    """Return the columns that stand for an encoded image and its label."""
    found: dict[str, str] = {}
    pairs = list(zip(columns.names, columns.encodings, strict=True))
    image = next((name for name, encoding in pairs if encoding in IMAGES), None) or next(
        (
            name
            for name, encoding in pairs
            if encoding == "bytes" and name in ("image", "img", "x", "jpg", "jpeg", "png")
        ),
        None,
    )
    if image is not None:
        found[IMAGE] = image
    label = next((name for wanted in _LABELS for name, _ in pairs if name == wanted), None)
    if label is not None:
        found[LABEL] = label
    return found


def _roles(columns: _Columns, fields: Sequence[str]) -> set[str]:
    return {name for role, name in _role_columns(columns).items() if role in fields}


mds = Mds(name="mds", words="MosaicML's MDS shards with an index.json")
