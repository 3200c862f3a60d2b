r"""Files of tokens: documents of Megatron-LM's .bin and .idx, and windows of flat arrays.

Megatron's index, all numbers little-endian:

    9 bytes "MMIDIDX\0\0" | uint64 version 1 | 1 byte type of tokens | uint64 sequences | uint64 documents
    int32 length of each sequence, in tokens | int64 byte of each sequence | int64 first sequence of each document

Covers: both. Does not cover: columns of records (emlio.formats.token_form),
batches of tokens (emlio.receiver.tokens).
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.formats.array_rows import check_numbers, header_of
from emlio.formats.contents import Contents, FieldType
from emlio.formats.format import Files, Format, Layout, Ranges, ShardFiles
from emlio.formats.record_form import RowForm
from emlio.formats.token_form import TOKENS, token_form, token_settings

__all__ = ["FlatTokens", "IndexedTokens", "flat_tokens", "indexed_tokens"]

_MAGIC: Final = b"MMIDIDX\0\0"
_HEAD: Final = struct.Struct("<9sQBQQ")
_CODES: Final = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_FLAT: Final = ("uint8", "uint16", "uint32", "int16", "int32", "int64")


class IndexedTokens(Format):
    """Megatron-LM's files: a document is a record. See `Format`."""

    def claims(self, files: Files) -> bool:
        """See `Format`."""
        pairs = _pairs(files)
        return bool(pairs) and files.read(pairs[0][2], 0, len(_MAGIC)) == _MAGIC

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        pairs = _pairs(files)
        if not pairs:
            raise DatasetError(f"dataset directory {where}: must hold .bin files with an .idx file each, holds none")
        types = {name: _index(files, index).dtype for name, _, index in pairs}
        first = types[pairs[0][0]]
        for name, dtype in types.items():
            if dtype != first:
                raise DatasetError(
                    f"{name}: all files must have tokens of one type, {pairs[0][0]} has {first}, this one {dtype}"
                )
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(data, index)) for name, data, index in pairs),
            settings=token_settings(first, None),
            schema={TOKENS: FieldType(first.name)},
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        data, number = shard.files
        index = _index(files, number)
        lengths_bytes = index.lengths.astype(np.int64) * index.dtype.itemsize
        ends = np.cumsum(lengths_bytes)
        bounds = index.documents
        if len(bounds) < 1 or int(bounds[0]) != 0 or int(bounds[-1]) != len(ends) or (np.diff(bounds) < 0).any():
            raise DatasetError(
                f"{files.path(number)}: its documents must divide its {len(ends)} sequences, they go from "
                f"{bounds[:1].tolist()} to {bounds[-1:].tolist()}"
            )
        # The tools that make such files write the sequences one after the other, so that a type of tokens, or a file, that
        # is not the index's own is found.
        strange = np.flatnonzero((index.lengths < 0) | (index.pointers != ends - lengths_bytes))
        if strange.size:
            at = int(strange[0])
            raise DatasetError(
                f"{files.path(number)}: sequence {at} must begin at byte {int(ends[at] - lengths_bytes[at])}, where the "
                f"one before ends, it has {int(index.lengths[at])} tokens at byte {int(index.pointers[at])}"
            )
        size, end = int(files.sizes[data]), int(ends[-1]) if len(ends) else 0
        if end != size:
            raise DatasetError(
                f"{files.path(number)}: does not fit {files.names[data]}: its {len(ends)} sequences of {index.dtype} must fill "
                f"the file's {size} bytes, they end at {end}"
            )
        firsts, lasts = bounds[:-1], bounds[1:]
        filled = lasts > firsts  # a document without a sequence has no bytes
        return Ranges(starts=index.pointers[firsts[filled]], ends=ends[lasts[filled] - 1])

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        return token_form(contents, fields)


class FlatTokens(Format):
    """Flat arrays of tokens: a window of them is a record. See `Format`."""

    def claims(self, files: Files) -> bool:
        """See `Format`."""
        return False

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        window = options.get("window", "")
        if not window.isdecimal() or not 1 <= int(window) < 1 << 31:
            raise ConfigError(
                f"{where}: format tokens must have window=L, a number of tokens of at least 1, got {window!r}"
            )
        given = options.get("dtype")
        if given is not None and given not in _FLAT:
            raise ConfigError(f"{where}: dtype must be one of {', '.join(_FLAT)}, got {given!r}")
        found = sorted((name, number) for number, name in enumerate(files.names) if name.endswith((".bin", ".npy")))
        if not found:
            raise DatasetError(f"dataset directory {where}: must hold .bin or .npy files of tokens, holds none")
        types = {name: self._flat(files, number, given)[0] for name, number in found}
        first = types[found[0][0]]
        for name, dtype in types.items():
            if dtype != first:
                raise DatasetError(
                    f"{name}: all files must have tokens of one type, {found[0][0]} has {first}, this one {dtype}"
                )
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(number,)) for name, number in found),
            settings=token_settings(first, int(window)),
            schema={TOKENS: FieldType(first.name, (int(window) + 1,))},
        )

    def _flat(self, files: Files, number: int, given: str | None) -> "tuple[np.dtype[Any], int, int]":
        """Return the type of a file's tokens, the byte where they begin, and how many there are."""
        name, size = str(files.path(number)), int(files.sizes[number])
        if name.endswith(".npy"):
            header = header_of(files, number)
            check_numbers(header, size, name)
            if len(header.shape) != 1 or header.dtype.kind not in "iu" or (given and header.dtype != np.dtype(given)):
                raise DatasetError(
                    f"{name}: must be one row of {given or 'whole numbers'}, is {header.dtype} {header.shape}"
                )
            return header.dtype, header.begin, header.shape[0]
        if given is None:
            raise ConfigError(f"{name}: tokens in a .bin file must be given with dtype=, one of {', '.join(_FLAT)}")
        dtype = np.dtype(given).newbyteorder("<")
        if size % dtype.itemsize:
            raise DatasetError(f"{name}: must be whole tokens of {dtype.itemsize} bytes ({given}), has {size} bytes")
        return dtype, 0, size // dtype.itemsize

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        told = json.loads(settings)
        window, dtype = int(told["window"]), np.dtype(str(told["dtype"]))
        number = shard.files[0]
        given = None if files.names[number].endswith(".npy") else dtype.name
        _, begin, count = self._flat(files, number, given)
        windows = max((count - 1) // window, 0)
        starts = np.arange(windows, dtype=np.int64) * (window * dtype.itemsize) + begin
        return Ranges(starts=starts, ends=starts + (window + 1) * dtype.itemsize)

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        return token_form(contents, fields)


def _pairs(files: Files) -> list[tuple[str, int, int]]:
    """Return the .bin files that have an .idx file: names, and the numbers of both."""
    if not files.endings.get(".idx") or not files.endings.get(".bin"):
        return []
    indexes = {name[:-4]: number for number, name in enumerate(files.names) if name.endswith(".idx")}
    data = {name[:-4] for name in files.names if name.endswith(".bin")}
    alone = sorted(data ^ indexes.keys())
    if data & indexes.keys() and alone:
        there, lacks = (".bin", ".idx") if alone[0] in data else (".idx", ".bin")
        raise DatasetError(f"{alone[0]}{there}: must have its {lacks} beside it: a part of the dataset is missing")
    return sorted(
        (name, number, indexes[name[:-4]])
        for number, name in enumerate(files.names)
        if name.endswith(".bin") and name[:-4] in indexes
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Index:
    """An .idx file: the tokens' type; lengths and bytes of sequences, first sequences of documents."""

    dtype: "np.dtype[Any]"
    lengths: npt.NDArray[np.int32]
    pointers: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]


def _index(files: Files, number: int) -> _Index:
    name, size = str(files.path(number)), int(files.sizes[number])
    data = files.read(number, 0, size)
    if len(data) < _HEAD.size or data[: len(_MAGIC)] != _MAGIC:
        raise DatasetError(f"{name}: must be an index of Megatron-LM, begins with {data[:9]!r}")
    _, version, code, sequences, documents = _HEAD.unpack_from(data)
    if version != 1 or code not in _CODES:
        raise DatasetError(
            f"{name}: must be of version 1 with a known type of tokens, has version {version}, type {code}"
        )
    dtype = np.dtype(_CODES[code])
    if dtype.kind == "f":
        raise DatasetError(f"{name}: must hold tokens, its numbers are {dtype}")
    needed = _HEAD.size + 12 * sequences + 8 * documents
    if len(data) not in (needed, needed + sequences):  # a mode of each sequence may follow
        raise DatasetError(
            f"{name}: {sequences} sequences and {documents} documents need {needed} bytes, it has {len(data)}"
        )
    at = _HEAD.size
    lengths = np.frombuffer(data, "<i4", sequences, at)
    pointers = np.frombuffer(data, "<i8", sequences, at + 4 * sequences)
    return _Index(
        dtype=dtype,
        lengths=lengths,
        pointers=pointers,
        documents=np.frombuffer(data, "<i8", documents, at + 12 * sequences),
    )


indexed_tokens = IndexedTokens(name="megatron", words="Megatron-LM's .bin and .idx files, a document a record")
flat_tokens = FlatTokens(
    name="tokens",
    words="flat .bin or .npy files of tokens, a window a record; must be asked for",
    options={
        "window": "L: records of L + 1 tokens, one every L",
        "dtype": "of the tokens in .bin files: " + ", ".join(_FLAT),
    },
)
