"""A sample dataset in each format, whose records all say their number, and what is expected of it."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from emlio_testing.datasets import make_dataset, numbered_payload
from emlio_testing.format_files import put_files, tar_of, write_mds, write_megatron

__all__ = ["FORMS", "Form", "parts"]

_arrow_library: Any = import_module("pyarrow")  # which has no types
_ipc: Any = import_module("pyarrow.ipc")
_parquet_library: Any = import_module("pyarrow.parquet")

Payload = Callable[[int], bytes]


def _third(number: int) -> bool:
    return number % 3 == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One format.

    Attributes:
        write: writes so many records into a folder, whose bytes, if they have any, a function gives.
        numbers: returns the numbers of a batch's records.
        options: follow the folder.
        arguments: of the loader.
        pictures: whether the bytes may be pictures, to be previewed.
        by_class: whether the files are in the order of their classes, a third of the numbers each.
        predicate: holds for the records whose number is chosen, if the records have another column.
        chosen: see `predicate`.
    """

    write: Callable[[Path, int, Payload], None]
    numbers: Callable[[Mapping[str, Any]], list[int]]
    options: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pictures: bool = False
    by_class: bool = False
    predicate: str = ""
    chosen: Callable[[int], bool] = _third

    def make(self, folder: Path, records: int, payload: Payload = numbered_payload) -> None:
        """Make a dataset in a folder."""
        folder.mkdir(parents=True)
        self.write(folder, records, payload)

    def address(self, folder: Path) -> str:
        """Return the folder with the options."""
        return f"{folder}{self.options}"

    def order(self, records: int) -> list[int]:
        """Return the numbers of the records in the order of the files."""
        return sorted(range(records), key=lambda number: (number % 3 if self.by_class else 0, number))


_FILES = 4
"""Files of each dataset whose records are ranges."""


def parts(records: int) -> list[range]:
    """Return the numbers of the records of each file."""
    return [range(part * records // _FILES, (part + 1) * records // _FILES) for part in range(_FILES)]


def _of_bytes(column: str) -> Callable[[Mapping[str, Any]], list[int]]:
    return lambda batch: [int.from_bytes(bytes(record[:8]), "little") for record in batch[column]]


def _of_numbers(column: str, *place: int) -> Callable[[Mapping[str, Any]], list[int]]:
    return lambda batch: [int(value[place] if place else value) for value in np.asarray(batch[column])]


def _tfrecord(folder: Path, records: int, payload: Payload) -> None:
    make_dataset(folder, records=records, shards=_FILES, payload=payload)


def _files(folder: Path, records: int, payload: Payload) -> None:
    put_files(folder, {f"class-{number % 3}/{number:06d}.bin": payload(number) for number in range(records)})


def _tar(folder: Path, records: int, payload: Payload) -> None:
    for part, numbers in enumerate(parts(records)):
        members = [
            (f"samples/{number:06d}.{extension}", data)
            for number in numbers
            for extension, data in (("bin", payload(number)), ("cls", b"%d" % (number % 3)))
        ]
        (folder / f"part-{part}.tar").write_bytes(tar_of(members))


def _npy(folder: Path, records: int, _: Payload) -> None:
    for number in range(records):
        np.save(folder / f"{number:06d}.npy", np.full((2, 3), number, np.int32))


def _npy_rows(folder: Path, records: int, _: Payload) -> None:
    for part, numbers in enumerate(parts(records)):
        np.save(folder / f"part-{part}.npy", np.repeat(np.array(numbers, np.int64), 3).reshape(-1, 3))


def _npz(folder: Path, records: int, _: Payload) -> None:
    for number in range(records):
        np.savez_compressed(folder / f"{number:06d}.npz", number=np.int64(number), more=np.arange(number % 7))


def _jsonl(folder: Path, records: int, _: Payload) -> None:
    for part, numbers in enumerate(parts(records)):
        lines = [json.dumps({"number": number, "third": number % 3, "text": "ü" * (number % 5)}) for number in numbers]
        (folder / f"part-{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _megatron(folder: Path, records: int, _: Payload) -> None:
    for part, numbers in enumerate(parts(records)):
        documents = [[np.array([number, *range(number % 11)])] for number in numbers]
        write_megatron(folder / f"part-{part}", documents, np.int32)


_WINDOW = 5


def _tokens(folder: Path, records: int, _: Payload) -> None:
    for part, numbers in enumerate(parts(records)):
        tokens = np.repeat(np.array(numbers, np.uint16), _WINDOW)
        np.append(tokens, np.uint16(0)).tofile(folder / f"part-{part}.bin")


def _mds(folder: Path, records: int, payload: Payload) -> None:
    samples = {
        f"shard.{part:05d}.mds": [{"data": payload(n), "label": struct.pack("<q", n % 3)} for n in numbers]
        for part, numbers in enumerate(parts(records))
    }
    files, index = write_mds({"data": ("bytes", None), "label": ("int", 8)}, samples)
    put_files(folder, {**files, "index.json": json.dumps(index).encode()})


_ROWS = 16
"""Rows of a group: some groups in each file."""


def _table(numbers: range, payload: Payload) -> Any:
    data = [payload(number) for number in numbers]
    return _arrow_library.table({"data": data, "label": [number % 3 for number in numbers]})


def _parquet(folder: Path, records: int, payload: Payload) -> None:
    for part, numbers in enumerate(parts(records)):
        path = folder / f"part-{part}.parquet"
        _parquet_library.write_table(_table(numbers, payload), path, row_group_size=_ROWS)


def _arrow(folder: Path, records: int, payload: Payload) -> None:
    for part, numbers in enumerate(parts(records)):
        table = _table(numbers, payload)
        # The two forms that such files have.
        make = _ipc.new_file if part % 2 else _ipc.new_stream
        with make(folder / f"part-{part}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=_ROWS)


_LABELLED: Mapping[str, Any] = {"numbers": _of_bytes("data"), "pictures": True, "predicate": "label == 1"}
_ARCHIVES: Mapping[str, Any] = {"write": _npz, "numbers": _of_numbers("number"), "arguments": {"fields": ["number"]}}

FORMS: Mapping[str, Form] = {
    "tfrecord": Form(write=_tfrecord, numbers=_of_bytes("record"), arguments={"raw": True}, pictures=True),
    "files": Form(write=_files, by_class=True, **_LABELLED),
    "tar": Form(write=_tar, numbers=_of_bytes("bin"), pictures=True),
    "npy": Form(write=_npy, numbers=_of_numbers("array", 0, 0)),
    "npy-rows": Form(write=_npy_rows, numbers=_of_numbers("row", 0), options="?format=npy-rows"),
    "npz": Form(**_ARCHIVES),
    "npz-inflated": Form(options="?inflate=storage", **_ARCHIVES),
    "jsonl": Form(write=_jsonl, numbers=_of_numbers("number"), predicate="third == 1"),
    "megatron": Form(write=_megatron, numbers=lambda batch: [int(document[0]) for document in batch["tokens"]]),
    "tokens": Form(
        write=_tokens, numbers=_of_numbers("tokens", 0), options=f"?format=tokens&window={_WINDOW}&dtype=uint16"
    ),
    "mds": Form(write=_mds, **_LABELLED),
    "parquet": Form(write=_parquet, **_LABELLED),
    "arrow": Form(write=_arrow, **_LABELLED),
}
