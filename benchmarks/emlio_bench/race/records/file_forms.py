"""The records as files, for systems that read files."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from emlio.example import encode_example, parse_example
from emlio.index.dali_index import write_dali_index
from emlio.index.opening import open_dataset
from emlio.tfrecord import frame
from emlio_bench.harness.contest import Corpus
from emlio_bench.harness.data import shard_paths
from emlio_bench.race.consumers.consume import records_of
from emlio_bench.race.records.corpus import made_once, make_records, read_records

__all__ = ["EXAMPLE_FEATURE", "IMAGE_FEATURE", "as_examples", "as_files"]

EXAMPLE_FEATURE: Final = "record"
"""The only feature of the Examples."""

IMAGE_FEATURE: Final = "image/encoded"
"""The feature of a picture."""

_NAME: Final = "image/filename"

_PER_FOLDER: Final = 1000
"""The number of files in a folder, about as in ImageNet.

In some file systems, look-ups in one folder wait for each other.
"""
_SHARDS: Final = 16


def as_files(corpus: Corpus, folder: Path) -> Path:
    """Make a file for each record, in folders as ImageFolder and DALI's file reader expect them."""

    def make(target: Path) -> None:
        pictures = corpus.has_pictures
        records = _pictures(corpus, folder) if pictures else enumerate(read_records(corpus, folder))
        for number, record in records:
            place = target / f"{number // _PER_FOLDER:05d}"
            place.mkdir(exist_ok=True)
            (place / f"{number:08d}.{'jpg' if pictures else 'bin'}").write_bytes(record)

    return made_once(folder / "files" / corpus.name, make)


def as_examples(corpus: Corpus, folder: Path) -> Path:
    """Make TFRecord files of Examples with one feature, each with an index file.

    The index has a line with offset and size for each record.
    """

    def make(target: Path) -> None:
        if corpus.has_pictures:
            _copy_shards(make_records(corpus, folder), target)
            return
        records = read_records(corpus, folder)
        for shard in range(_SHARDS):
            first, after = (corpus.records * number // _SHARDS for number in (shard, shard + 1))
            if first < after:
                _write_shard(target / f"{shard:05d}.tfrecord", records, after - first)

    return made_once(folder / "examples" / corpus.name, make)


def _write_shard(path: Path, records: Iterator[bytes], count: int) -> None:
    lines: list[str] = []
    with path.open("wb") as file:
        for _ in range(count):
            framed = frame(encode_example({EXAMPLE_FEATURE: next(records)}))
            lines.append(f"{file.tell()} {len(framed)}\n")
            file.write(framed)
    path.with_name(f"{path.name}.idx").write_text("".join(lines), encoding="ascii")


def _pictures(corpus: Corpus, folder: Path) -> Iterator[tuple[int, bytes]]:
    """Yield JPEGs with their numbers, which are in their names."""
    for path in shard_paths(make_records(corpus, folder)):
        for record in records_of([str(path)]):
            example = parse_example(record)
            (name,), (picture,) = example[_NAME], example[IMAGE_FEATURE]
            assert isinstance(name, memoryview)
            assert isinstance(picture, memoryview)
            yield int(bytes(name).partition(b"_")[2].partition(b".")[0]), bytes(picture)


def _copy_shards(directory: Path, target: Path) -> None:
    with open_dataset(directory.name, directory) as dataset:
        for shard, path in zip(dataset.shards, dataset.shard_paths, strict=True):
            shutil.copyfile(path, target / shard.name)
            write_dali_index(target / f"{shard.name}.idx", shard.offsets)
