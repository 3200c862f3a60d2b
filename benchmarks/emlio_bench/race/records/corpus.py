"""The records that all systems read.

Each record begins with its global id, 8 bytes little-endian; the rest does not compress. A dataset
of EMLIO is made first, and every other format from it, so that all hold the same bytes.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError, DatasetError
from emlio_bench.decode.run import make_pictures
from emlio_bench.harness.contest import DIGIT_PICTURES, PICTURE_SIZES, Corpus
from emlio_bench.harness.data import make_data, shard_paths
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.race.consumers.consume import records_of
from emlio_bench.race.records.digit_pictures import write_digit_pictures

__all__ = [
    "CORPORA",
    "corpus_of",
    "made_once",
    "make_records",
    "read_records",
]

CORPORA: Final = {
    "imagenet-like": 100_000,
    "coco-like": 200_000,
    "large": 2_000_000,
    "small": 3_000,
    "tokens": 8_192,
    "short-tokens": 1_024,
    "pictures": 94_000,
    "coco-pictures": 154_000,
    "digit-pictures": 164_000,
}
"""Sizes of records, named after datasets with records of about this size.

For pictures, the mean size.
"""

_ID_BYTES: Final = 8
_UNFINISHED: Final = ".unfinished"


def corpus_of(kind: str, payload_bytes: int) -> Corpus:
    """Return about `payload_bytes` of a kind of `CORPORA`."""
    if kind not in CORPORA:
        raise ConfigError(f"a corpus must be one of {', '.join(CORPORA)}, got {kind!r}")
    record_bytes = CORPORA[kind]
    return Corpus(
        records=max(payload_bytes // record_bytes, 1),
        record_bytes=record_bytes,
        **({"kind": kind} if kind in PICTURE_SIZES else {}),
    )


def make_records(corpus: Corpus, folder: Path) -> Path:
    """Make EMLIO's dataset, from which the other formats are made; return its directory."""
    if corpus.has_pictures:
        size = PICTURE_SIZES[corpus.kind]
        if corpus.kind == DIGIT_PICTURES:
            write = partial(write_digit_pictures, records=corpus.records, size=size)
            return made_once(folder / "emlio" / corpus.name, write)
        return make_pictures(corpus.records, size, folder / "emlio", progress=sys.stderr.isatty()).directory
    spec = DataSpec(kind=corpus.kind, record_bytes=corpus.record_bytes, records=corpus.records)
    return make_data(spec, folder / "emlio", progress=True)


def read_records(corpus: Corpus, folder: Path) -> Iterator[bytes]:
    """Yield all opaque records in the order of their ids."""
    if corpus.has_pictures:
        raise ConfigError(f"only opaque records can be taken out of their shards, not {corpus.text}")
    paths = map(str, shard_paths(make_records(corpus, folder)))
    for number, record in enumerate(records_of(list(paths))):
        if int.from_bytes(record[:_ID_BYTES], "little") != number:
            raise DatasetError(f"records must lie in the order of their ids, number {number} of {folder} does not")
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
