"""The same records in the formats that a daemon serves in place.

Pictures stand for records of about 100 kB: each begins with its number, 8 bytes little-endian, the
rest does not compress, and each has a label. Windows of tokens have no label: a window begins with
its number too, and ends with the first token of the next one, as `?format=tokens` cuts them.
"""

import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from emlio.example import encode_example
from emlio.tfrecord import frame
from emlio_bench.harness.contest import Corpus
from emlio_bench.race.records.corpus import made_once

__all__ = ["LABELS", "PICTURE_FORMS", "TOKEN_FORMS", "StoredForm", "form_folder"]

LABELS: Final = 100
"""The number of labels. A record's label is its number modulo this."""

_ID: Final = struct.Struct("<Q")
_TOKEN: Final = np.dtype("<i4")
_VOCABULARY: Final = 50_000
_SHARDS: Final = 16
_GROUP_ROWS: Final = 100
"""As in Parquet files of pictures that Hugging Face's datasets writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForm:
    """One format.

    Attributes:
        name: short stable name for results.
        words: description for the report.
        write: writes all records of a corpus into a folder.
        record: column of the records' bytes.
        label: column of their labels; empty if they have none.
        raw: whether records are handed out unchanged, in the column "record".
        options: returns what follows the folder's name when it is served, for a size of records.
    """

    name: str
    words: str
    write: Callable[[Corpus, Path], None]
    record: str
    label: str = ""
    raw: bool = False
    options: Callable[[int], str] = lambda record_bytes: ""


def form_folder(form: StoredForm, corpus: Corpus, folder: Path) -> Path:
    """Write the records below a folder, once, and return their folder."""
    return made_once(folder / "forms" / form.name / corpus.name, lambda target: form.write(corpus, target))


def _picture(corpus: Corpus, number: int) -> bytes:
    return _ID.pack(number) + np.random.default_rng(number).bytes(corpus.record_bytes - _ID.size)


def _tokens(corpus: Corpus, number: int) -> bytes:
    """Return the tokens of a window before its last one, which is the first of the next window."""
    count = corpus.record_bytes // _TOKEN.itemsize - 3
    drawn = np.random.default_rng(number).integers(0, _VOCABULARY, count, _TOKEN)
    return _ID.pack(number) + drawn.tobytes()


def _window(corpus: Corpus, number: int) -> bytes:
    return _tokens(corpus, number) + _ID.pack(number + 1)[: _TOKEN.itemsize]


def _parts(corpus: Corpus) -> Iterator[tuple[int, range]]:
    """Yield the numbers of each file's records, for formats of several records in a file."""
    for shard in range(_SHARDS):
        numbers = range(*(corpus.records * part // _SHARDS for part in (shard, shard + 1)))
        if numbers:
            yield shard, numbers


def _write_frames(corpus: Corpus, target: Path, record: Callable[[Corpus, int], bytes]) -> None:
    for shard, numbers in _parts(corpus):
        with (target / f"{shard:05d}.tfrecord").open("wb") as file:
            for number in numbers:
                file.write(frame(record(corpus, number)))


def _example(corpus: Corpus, number: int) -> bytes:
    return encode_example({"data": _picture(corpus, number), "label": number % LABELS})


def _write_examples(corpus: Corpus, target: Path) -> None:
    _write_frames(corpus, target, _example)


def _write_windows(corpus: Corpus, target: Path) -> None:
    _write_frames(corpus, target, _window)


def _write_tars(corpus: Corpus, target: Path) -> None:
    for shard, numbers in _parts(corpus):
        with tarfile.open(target / f"{shard:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in numbers:
                members = (("bin", _picture(corpus, number)), ("cls", str(number % LABELS).encode()))
                for extension, data in members:
                    entry = tarfile.TarInfo(f"{number:08d}.{extension}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))


def _write_files(corpus: Corpus, target: Path) -> None:
    for label in range(min(LABELS, corpus.records)):
        (target / f"class-{label:03d}").mkdir()
    for number in range(corpus.records):
        (target / f"class-{number % LABELS:03d}" / f"{number:08d}.bin").write_bytes(_picture(corpus, number))


def _write_mds(corpus: Corpus, target: Path) -> None:
    """Write MDS version 2: a size, the bytes and a label of 8 bytes for each sample, behind a table."""
    sample_bytes = 4 + corpus.record_bytes + 8
    shards: list[dict[str, Any]] = []
    for shard, numbers in _parts(corpus):
        name, count = f"shard.{shard:05d}.mds", len(numbers)
        begins = 4 * (count + 2) + sample_bytes * np.arange(count + 1, dtype=np.int64)
        with (target / name).open("wb") as file:
            file.write(struct.pack("<I", count) + begins.astype("<u4").tobytes())
            for number in numbers:
                file.write(struct.pack("<I", corpus.record_bytes) + _picture(corpus, number))
                file.write(struct.pack("<q", number % LABELS))
        shards.append(_mds_shard(name, count, int(begins[-1])))
    (target / "index.json").write_text(json.dumps({"version": 2, "shards": shards}), encoding="utf-8")


def _mds_shard(name: str, count: int, size_bytes: int) -> dict[str, Any]:
    return {
        "column_encodings": ["bytes", "int"],
        "column_names": ["data", "label"],
        "column_sizes": [None, 8],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "raw_data": {"basename": name, "bytes": size_bytes, "hashes": {}},
        "samples": count,
        "size_limit": 1 << 31,
        "version": 2,
        "zip_data": None,
    }


def _write_parquet(corpus: Corpus, target: Path) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    for shard, numbers in _parts(corpus):
        pictures = arrow.array([_picture(corpus, number) for number in numbers], arrow.binary())
        table = arrow.table({"data": pictures, "label": [number % LABELS for number in numbers]})
        parquet.write_table(table, target / f"{shard:05d}.parquet", row_group_size=_GROUP_ROWS)


def _write_flat(corpus: Corpus, target: Path) -> None:
    for shard, numbers in _parts(corpus):
        with (target / f"{shard:05d}.bin").open("wb") as file:
            for number in numbers:
                file.write(_tokens(corpus, number))
            file.write(_ID.pack(numbers[-1] + 1)[: _TOKEN.itemsize])


def _window_options(record_bytes: int) -> str:
    return f"?format=tokens&window={record_bytes // _TOKEN.itemsize - 1}&dtype=int32"


PICTURE_FORMS: Final[Sequence[StoredForm]] = (
    StoredForm(name="tfrecord", words="TFRecord of Examples", write=_write_examples, record="data", label="label"),
    StoredForm(name="tar", words="WebDataset tars", write=_write_tars, record="bin", label="image/class/label"),
    StoredForm(
        name="files", words="a file each, a folder for each class", write=_write_files, record="data", label="label"
    ),
    StoredForm(name="mds", words="MosaicML's MDS", write=_write_mds, record="data", label="label"),
    StoredForm(
        name="parquet",
        words=f"Parquet, row groups of {_GROUP_ROWS}",
        write=_write_parquet,
        record="data",
        label="label",
    ),
)
"""The formats of pictures; the others are compared with the first."""

TOKEN_FORMS: Final[Sequence[StoredForm]] = (
    StoredForm(
        name="token-records", words="TFRecord, a window a record", write=_write_windows, record="record", raw=True
    ),
    StoredForm(
        name="tokens", words="flat files of tokens", write=_write_flat, record="tokens", options=_window_options
    ),
)
"""The formats of windows of tokens; the others are compared with the first."""
