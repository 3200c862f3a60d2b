"""Folders of other formats than TFRecord for tests."""

import io
import json
import struct
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from emlio import EmlioLoader
from emlio.example.columns import Piece
from emlio.formats.contents import Contents
from emlio.formats.format import Format, GroupFormat, Ranges
from emlio.formats.record_form import RecordForm
from emlio.formats.whole_file import file_notes
from emlio_testing.loader_arguments import loader_arguments

__all__ = [
    "MEGATRON_CODES",
    "MemoryFiles",
    "mds_shard",
    "megatron_index",
    "npy_of",
    "numbered_lines",
    "numbered_mds",
    "put_files",
    "put_mds",
    "ranged_bytes",
    "read_folder",
    "read_megatron",
    "records_in",
    "row_of",
    "tar_of",
    "write_mds",
    "write_megatron",
]

Row = dict[str, Any]

MEGATRON_CODES = {
    np.uint8: 1,
    np.int8: 2,
    np.int16: 3,
    np.int32: 4,
    np.int64: 5,
    np.float64: 6,
    np.float32: 7,
    np.uint16: 8,
}


class MemoryFiles:
    """Files in memory, in the order of a tree. See `emlio.formats.format.Files`."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        """Hold these files, given by their paths."""
        self.names: Sequence[str] = sorted(contents, key=_tree_order)
        self._contents = [contents[name] for name in self.names]
        self.endings = Counter(PurePosixPath(name).suffix.lower() for name in self.names)
        self.sizes: npt.NDArray[np.int64] = np.array([len(one) for one in self._contents], np.int64)

    def path(self, number: int) -> str:
        """See `Files`."""
        return self.names[number]

    def read(self, number: int, offset: int, length: int) -> bytes:
        """See `Files`."""
        return self._contents[number][offset : offset + length]

    def open(self, number: int) -> IO[bytes]:
        """See `Files`."""
        return io.BytesIO(self._contents[number])


def _tree_order(path: str) -> list[tuple[bool, bytes]]:
    *folders, file = path.split("/")
    return [*((True, name.encode("utf-8", "surrogateescape")) for name in folders), (False, file.encode())]


def row_of(form: RecordForm, record: bytes, note: bytes = b"") -> Row:
    """Return the columns of one record."""
    data = memoryview(record + note)
    zero = np.zeros(1, np.int64)
    size = np.array([len(record)], np.int64)
    piece = Piece(buffer=data, starts=zero, ends=size, slots=zero, notes=np.array([[len(record), len(data)]], np.int64))
    return {name: column[0] for name, column in form.columns([piece], 1).items()}


def records_in(
    chosen: Format,
    contents: Mapping[str, bytes],
    *,
    fields: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> list[Row]:
    """Return the columns of all records of these files, as a rank would get them, in the order of the shards."""
    files = MemoryFiles(contents)
    layout = chosen.layout(files, options or {}, "data")
    form = chosen.form(Contents(format=chosen.name, settings=layout.settings), fields)
    rows: list[Row] = []
    for shard in layout.shards:
        if shard.whole_files:
            numbers = np.asarray(shard.files, np.int64)
            for number, note in zip(numbers.tolist(), file_notes(files.names, layout.labels, numbers), strict=True):
                rows.append(row_of(form, files.read(number, 0, int(files.sizes[number])), note))
            continue
        ranges = chosen.ranges(files, shard, layout.settings)
        content = ranged_bytes(chosen, files, shard.files[0], ranges, layout.settings)
        for start, end in zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True):
            rows.append(row_of(form, content[start:end]))
    return rows


def ranged_bytes(chosen: Format, files: MemoryFiles, number: int, ranges: Ranges, settings: bytes) -> bytes:
    """Return the bytes in which the records of a file have their ranges."""
    if ranges.groups is None:
        return files.read(number, 0, int(files.sizes[number]))
    assert isinstance(chosen, GroupFormat)
    places: list[int] = ranges.groups[:, 1].tolist()
    with files.open(number) as file:
        common = chosen.common(file, files.names[number])
        return b"".join(chosen.unpack(file, place, settings, files.names[number], common).tobytes() for place in places)


def read_folder(address: str | Path, **options: Any) -> list[Row]:
    """Return the columns of all records of a folder through a loader, by the records' ids, without shuffling."""
    rows: dict[int, Row] = {}
    arguments: dict[str, Any] = {"batch_size": 7, "to": "numpy", "shuffle": False, "timeout": "20s", **options}
    with EmlioLoader(str(address), **loader_arguments(ids=True, **arguments)) as loader:
        for batch in loader:
            ids = batch.pop("__id__").tolist()
            for place, number in enumerate(ids):
                if number in rows:
                    raise AssertionError(f"record {number} came twice")
                rows[number] = {name: column[place] for name, column in batch.items()}
    return [rows[number] for number in sorted(rows)]


def put_files(folder: Path, contents: Mapping[str, bytes]) -> Path:
    """Write files by their paths below a folder, and return it."""
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def npy_of(array: npt.NDArray[Any]) -> bytes:
    """Return a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def numbered_lines(*numbers: int) -> bytes:
    """Return a line of JSON for each number."""
    return b"".join(b'{"n": %d}\n' % number for number in numbers)


def tar_of(members: Iterable[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar of regular files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


# ---- Megatron-LM ----------------------------------------------------------------------------------------------------


def megatron_index(
    code: int,
    lengths: Sequence[int],
    pointers: Sequence[int],
    documents: Sequence[int],
    *,
    version: int = 1,
    magic: bytes = b"MMIDIDX\x00\x00",
) -> bytes:
    """Return an .idx file."""
    return b"".join(
        (
            magic,
            struct.pack("<QBQQ", version, code, len(lengths), len(documents)),
            np.array(lengths, "<i4").tobytes(),
            np.array(pointers, "<i8").tobytes(),
            np.array(documents, "<i8").tobytes(),
        )
    )


def write_megatron(
    prefix: Path, documents: Sequence[Sequence[npt.NDArray[Any]]], dtype: type[np.generic], *, modes: bool = False
) -> None:
    """Write PREFIX.bin and PREFIX.idx as Megatron-LM's IndexedDatasetBuilder does: documents of sequences."""
    sequences = [sequence.astype(dtype) for document in documents for sequence in document]
    prefix.with_suffix(".bin").write_bytes(b"".join(sequence.tobytes() for sequence in sequences))
    lengths = [len(sequence) for sequence in sequences]
    pointers = [sum(lengths[:number]) * np.dtype(dtype).itemsize for number in range(len(lengths))]
    bounds = np.cumsum([0, *(len(document) for document in documents)]).tolist()
    index = megatron_index(MEGATRON_CODES[cast("Any", dtype)], lengths, pointers, bounds)
    prefix.with_suffix(".idx").write_bytes(index + (bytes(len(lengths)) if modes else b""))


def read_megatron(prefix: Path) -> list[npt.NDArray[Any]]:
    """Return the tokens of each document, as Megatron-LM's IndexedDataset has them, empty documents left out."""
    with prefix.with_suffix(".idx").open("rb") as file:
        if file.read(9) != b"MMIDIDX\x00\x00" or struct.unpack("<Q", file.read(8)) != (1,):
            raise AssertionError("not an index")
        dtype = {code: kind for kind, code in MEGATRON_CODES.items()}[struct.unpack("<B", file.read(1))[0]]
        count, bounds_count = struct.unpack("<QQ", file.read(16))
        rest = file.read()
    lengths = np.frombuffer(rest, np.int32, count)
    pointers = np.frombuffer(rest, np.int64, count, lengths.nbytes)
    bounds = np.frombuffer(rest, np.int64, bounds_count, lengths.nbytes + pointers.nbytes)
    data = prefix.with_suffix(".bin").read_bytes()
    sequences = [np.frombuffer(data, dtype, length, pointer) for length, pointer in zip(lengths, pointers, strict=True)]
    return [np.concatenate(sequences[begin:end]) for begin, end in pairwise(bounds) if end > begin]


# ---- MDS ------------------------------------------------------------------------------------------------------------


def mds_shard(columns: Mapping[str, tuple[str, int | None]], samples: Sequence[Mapping[str, bytes]]) -> bytes:
    """Return a shard of these samples, whose values are encoded already; columns have an encoding and a size."""
    packed = [
        b"".join(struct.pack("<I", len(sample[name])) for name, (_, size) in columns.items() if size is None)
        + b"".join(sample[name] for name in columns)
        for sample in samples
    ]
    config = json.dumps({"column_names": list(columns), "format": "mds"}).encode()
    begin = 4 + 4 * (len(samples) + 1) + len(config)
    bounds = np.cumsum([begin, *(len(one) for one in packed)]).astype("<u4")
    return struct.pack("<I", len(samples)) + bounds.tobytes() + config + b"".join(packed)


def write_mds(
    columns: Mapping[str, tuple[str, int | None]], shards: Mapping[str, Sequence[Mapping[str, bytes]]]
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files of an MDS dataset without index.json, and the value that index.json must hold."""
    files = {name: mds_shard(columns, samples) for name, samples in shards.items()}
    told: list[dict[str, Any]] = [
        {
            "column_names": list(columns),
            "column_encodings": [encoding for encoding, _ in columns.values()],
            "column_sizes": [size for _, size in columns.values()],
            "compression": None,
            "format": "mds",
            "hashes": [],
            "raw_data": {"basename": name, "bytes": len(files[name]), "hashes": {}},
            "samples": len(shards[name]),
            "size_limit": 1 << 26,
            "version": 2,
            "zip_data": None,
        }
        for name in shards
    ]
    return files, {"version": 2, "shards": told}


def numbered_mds(shards: Mapping[str, Sequence[int]]) -> dict[str, bytes]:
    """Return the files of an MDS dataset with a number in each sample."""
    samples = {name: [{"n": struct.pack("<q", number)} for number in numbers] for name, numbers in shards.items()}
    files, index = write_mds({"n": ("int64", 8)}, samples)
    return {**files, "index.json": json.dumps(index).encode()}


def put_mds(folder: Path, columns: Mapping[str, tuple[str, int | None]], *samples: Mapping[str, bytes]) -> None:
    """Write an MDS dataset of one shard into a folder."""
    files, index = write_mds(columns, {"shard.00000.mds": samples})
    put_files(folder, {**files, "index.json": json.dumps(index).encode()})
