"""One small dataset in each format, whose records all say their number."""

import io
import json
import struct
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from emlio_testing.datasets import make_dataset, numbered_payload

__all__ = ["FORMS", "Form"]

_arrow_library: Any = import_module("pyarrow")  # which has no types
_ipc: Any = import_module("pyarrow.ipc")
_parquet_library: Any = import_module("pyarrow.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One format.

    Attributes:
        make: makes a dataset of so many records in a folder.
        numbers: returns the numbers of a batch's records.
        options: follow the folder.
        arguments: of the loader.
    """

    make: Callable[[Path, int], None]
    numbers: Callable[[Mapping[str, Any]], list[int]]
    options: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def address(self, folder: Path) -> str:
        """Return the folder with the options."""
        return f"{folder}{self.options}"


_FILES = 4
"""Files of each dataset whose records are ranges."""


def _parts(records: int) -> list[range]:
    """Return the numbers of the records of each file."""
    return [range(part * records // _FILES, (part + 1) * records // _FILES) for part in range(_FILES)]


def _of_bytes(column: str) -> Callable[[Mapping[str, Any]], list[int]]:
    return lambda batch: [int.from_bytes(bytes(record[:8]), "little") for record in batch[column]]


def _of_numbers(column: str, *place: int) -> Callable[[Mapping[str, Any]], list[int]]:
    return lambda batch: [int(value[place] if place else value) for value in np.asarray(batch[column])]


def _tfrecord(folder: Path, records: int) -> None:
    make_dataset(folder, records=records, shards=_FILES)


def _files(folder: Path, records: int) -> None:
    for number in range(records):
        path = folder / f"class-{number % 3}" / f"{number:06d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(numbered_payload(number))


def _tar(folder: Path, records: int) -> None:
    folder.mkdir()
    for part, numbers in enumerate(_parts(records)):
        with tarfile.open(folder / f"part-{part}.tar", "w") as archive:
            for number in numbers:
                for extension, data in (("bin", numbered_payload(number)), ("cls", str(number % 3).encode())):
                    member = tarfile.TarInfo(f"samples/{number:06d}.{extension}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


def _npy(folder: Path, records: int) -> None:
    folder.mkdir()
    for number in range(records):
        np.save(folder / f"{number:06d}.npy", np.full((2, 3), number, np.int32))


def _npy_rows(folder: Path, records: int) -> None:
    folder.mkdir()
    for part, numbers in enumerate(_parts(records)):
        np.save(folder / f"part-{part}.npy", np.repeat(np.array(numbers, np.int64), 3).reshape(-1, 3))


def _npz(folder: Path, records: int) -> None:
    folder.mkdir()
    for number in range(records):
        np.savez_compressed(folder / f"{number:06d}.npz", number=np.int64(number), more=np.arange(number % 7))


def _jsonl(folder: Path, records: int) -> None:
    folder.mkdir()
    for part, numbers in enumerate(_parts(records)):
        lines = [json.dumps({"number": number, "text": "ü" * (number % 5)}) for number in numbers]
        (folder / f"part-{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _megatron(folder: Path, records: int) -> None:
    folder.mkdir()
    for part, numbers in enumerate(_parts(records)):
        documents = [np.array([number, *range(number % 11)], np.int32) for number in numbers]
        lengths = np.array([len(document) for document in documents], np.int32)
        (folder / f"part-{part}.bin").write_bytes(np.concatenate(documents).tobytes())
        begins = (np.cumsum(lengths, dtype=np.int64) - lengths) * 4
        head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 4, len(lengths), len(lengths) + 1)
        bounds = np.arange(len(lengths) + 1, dtype=np.int64)
        index = head + lengths.tobytes() + begins.tobytes() + bounds.tobytes()
        (folder / f"part-{part}.idx").write_bytes(index)


_WINDOW = 5


def _tokens(folder: Path, records: int) -> None:
    folder.mkdir()
    for part, numbers in enumerate(_parts(records)):
        tokens = np.repeat(np.array(numbers, np.uint16), _WINDOW)
        np.append(tokens, np.uint16(0)).tofile(folder / f"part-{part}.bin")


def _mds(folder: Path, records: int) -> None:
    folder.mkdir()
    shards: list[dict[str, Any]] = []
    for part, numbers in enumerate(_parts(records)):
        samples: list[bytes] = []
        for number in numbers:
            data = numbered_payload(number)
            samples.append(struct.pack("<I", len(data)) + data + struct.pack("<q", number % 3))
        table = 4 * (len(samples) + 2)
        bounds = np.cumsum([table, *(len(sample) for sample in samples)]).astype("<u4")
        name = f"shard.{part:05d}.mds"
        content = struct.pack("<I", len(samples)) + bounds.tobytes() + b"".join(samples)
        (folder / name).write_bytes(content)
        shards.append(
            {
                "column_encodings": ["bytes", "int"],
                "column_names": ["data", "label"],
                "column_sizes": [None, 8],
                "compression": None,
                "format": "mds",
                "hashes": [],
                "raw_data": {"basename": name, "bytes": len(content), "hashes": {}},
                "samples": len(samples),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": None,
            }
        )
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


_ROWS = 16
"""Rows of a group: some groups in each file."""


def _table(numbers: range) -> Any:
    data = [numbered_payload(number) for number in numbers]
    return _arrow_library.table({"data": data, "label": [number % 3 for number in numbers]})


def _parquet(folder: Path, records: int) -> None:
    folder.mkdir()
    for part, numbers in enumerate(_parts(records)):
        _parquet_library.write_table(_table(numbers), folder / f"part-{part}.parquet", row_group_size=_ROWS)


def _arrow(folder: Path, records: int) -> None:
    folder.mkdir()
    for part, numbers in enumerate(_parts(records)):
        table = _table(numbers)
        # The two forms that such files have.
        make = _ipc.new_file if part % 2 else _ipc.new_stream
        with make(folder / f"part-{part}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=_ROWS)


FORMS: Mapping[str, Form] = {
    "tfrecord": Form(make=_tfrecord, numbers=_of_bytes("record"), arguments={"raw": True}),
    "files": Form(make=_files, numbers=_of_bytes("data")),
    "tar": Form(make=_tar, numbers=_of_bytes("bin")),
    "npy": Form(make=_npy, numbers=_of_numbers("array", 0, 0)),
    "npy-rows": Form(make=_npy_rows, numbers=_of_numbers("row", 0), options="?format=npy-rows"),
    "npz": Form(make=_npz, numbers=_of_numbers("number"), arguments={"fields": ["number"]}),
    "npz-inflated": Form(
        make=_npz, numbers=_of_numbers("number"), options="?inflate=storage", arguments={"fields": ["number"]}
    ),
    "jsonl": Form(make=_jsonl, numbers=_of_numbers("number")),
    "megatron": Form(make=_megatron, numbers=lambda batch: [int(document[0]) for document in batch["tokens"]]),
    "tokens": Form(
        make=_tokens, numbers=_of_numbers("tokens", 0), options=f"?format=tokens&window={_WINDOW}&dtype=uint16"
    ),
    "mds": Form(make=_mds, numbers=_of_bytes("data")),
    "parquet": Form(make=_parquet, numbers=_of_bytes("data")),
    "arrow": Form(make=_arrow, numbers=_of_bytes("data")),
}
