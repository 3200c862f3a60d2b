"""The records as files for systems that read files.

Covers: one file for each record in folders of a thousand, TFRecord files of Examples with DALI's index. Does not cover: serving.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from emlio.benchmarks.race.corpus import Corpus, made_once, read_records
from emlio.example import encode_example
from emlio.tfrecord import frame

__all__ = ["EXAMPLE_FEATURE", "as_examples", "as_files"]

EXAMPLE_FEATURE: Final = "record"
"""The only feature of the Examples."""

_PER_FOLDER: Final = 1000
"""As ImageNet has it, about; and look-ups in one folder wait for each other in some file systems."""
_SHARDS: Final = 16


def as_files(corpus: Corpus, folder: Path) -> Path:
    """A file for each record, in folders as torchvision's ImageFolder and DALI's file reader have them."""

    def make(target: Path) -> None:
        for number, record in enumerate(read_records(corpus, folder)):
            place = target / f"{number // _PER_FOLDER:05d}"
            if number % _PER_FOLDER == 0:
                place.mkdir()
            (place / f"{number:08d}.bin").write_bytes(record)

    return made_once(folder / "files" / corpus.name, make)


def as_examples(corpus: Corpus, folder: Path) -> Path:
    """TFRecord files of Examples with one feature; beside each its index, a line of offset and size for each record."""

    def make(target: Path) -> None:
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
    path.with_suffix(".idx").write_text("".join(lines), encoding="ascii")
