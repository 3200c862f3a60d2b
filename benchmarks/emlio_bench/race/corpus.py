"""The records that all systems read.

Each record begins with its global id, 8 bytes little-endian; the rest does not compress. A dataset
of EMLIO is made first, and every other format from it, so that all hold the same bytes.

Covers: the sets of records, making them, formats that are either complete or absent. Does not
cover: the formats of other systems (emlio_bench.race.subjects).
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError, DatasetError
from emlio.tfrecord import FOOTER_BYTES, HEADER_BYTES
from emlio.units import format_size
from emlio_bench.decode.run import make_pictures
from emlio_bench.harness.data import make_data, shard_paths
from emlio_bench.harness.scenario import DataSpec

__all__ = [
    "CORPORA",
    "PICTURES",
    "PICTURE_SIZE",
    "SIZES",
    "Corpus",
    "corpus_of",
    "made_once",
    "make_records",
    "read_records",
]

SIZES: Final = {"quick": 60_000_000, "600MB": 600_000_000, "3GB": 3_000_000_000}
"""Payload of a corpus, by name."""

CORPORA: Final = {
    "imagenet-like": 100_000,
    "coco-like": 200_000,
    "large": 2_000_000,
    "small": 3_000,
    "tokens": 8_192,
    "pictures": 94_000,
}
"""Sizes of records, named after datasets with records of about this size.

For pictures, the mean size.
"""

PICTURES: Final = "pictures"
PICTURE_SIZE: Final = (500, 375)

_ID_BYTES: Final = 8
_UNFINISHED: Final = ".unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A number of records of one size.

    Attributes:
        records: number of records; their ids are 0 to records - 1.
        record_bytes: size of each record, with its id.
        kind: "opaque", or "pictures": JPEGs with labels, whose number is in their name.
    """

    records: int
    record_bytes: int
    kind: str = "opaque"

    def __post_init__(self) -> None:
        if self.kind not in ("opaque", PICTURES):
            raise ConfigError(f"a corpus must be of kind opaque or {PICTURES}, got {self.kind!r}")
        if self.records < 1 or self.record_bytes < 2 * _ID_BYTES:
            raise ConfigError(
                f"a corpus must have a record of at least {2 * _ID_BYTES} bytes, got {self.records} of {self.record_bytes}"
            )

    @property
    def payload_bytes(self) -> int:
        """Payload of all records."""
        return self.records * self.record_bytes

    @property
    def name(self) -> str:
        """Name of the corpus's folders, different for each corpus."""
        return f"{self.kind}-{self.record_bytes}-x{self.records}"

    @property
    def text(self) -> str:
        """Description for people."""
        return f"{self.records:,} records of {format_size(self.record_bytes)}"


def corpus_of(kind: str, payload_bytes: int) -> Corpus:
    """Return about `payload_bytes` of a kind of `CORPORA`."""
    if kind not in CORPORA:
        raise ConfigError(f"a corpus must be one of {', '.join(CORPORA)}, got {kind!r}")
    record_bytes = CORPORA[kind]
    return Corpus(
        records=max(payload_bytes // record_bytes, 1),
        record_bytes=record_bytes,
        kind=PICTURES if kind == PICTURES else "opaque",
    )


def make_records(corpus: Corpus, folder: Path) -> Path:
    """Make EMLIO's dataset, from which the other formats are made; return its directory."""
    if corpus.kind == PICTURES:
        return make_pictures(corpus.records, PICTURE_SIZE, folder / "emlio", progress=True).directory
    spec = DataSpec(kind="opaque", record_bytes=corpus.record_bytes, records=corpus.records)
    return make_data(spec, folder / "emlio", progress=True)


def read_records(corpus: Corpus, folder: Path) -> Iterator[bytes]:
    """Yield all opaque records in the order of their ids."""
    if corpus.kind != "opaque":
        raise ConfigError(f"only opaque records can be taken out of their shards, not {corpus.text}")
    count = 0
    for path in shard_paths(make_records(corpus, folder)):
        with path.open("rb") as file:
            while head := file.read(HEADER_BYTES):
                length = int.from_bytes(head[:8], "little")
                record = file.read(length)
                file.seek(FOOTER_BYTES, 1)
                if int.from_bytes(record[:_ID_BYTES], "little") != count:
                    raise DatasetError(f"records must lie in the order of their ids, number {count} of {path} does not")
                count += 1
                yield record


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Make a folder completely, or find it complete. An interrupted run's folder is made anew.

    Args:
        target: the folder.
        make: fills the folder that it is given.
    """
    if target.exists():
        return target
    unfinished = target.with_name(target.name + _UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        make(unfinished)
        unfinished.rename(target)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise DatasetError(f"a form of the data must have room: {target}: {error.strerror or error}") from error
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return target
