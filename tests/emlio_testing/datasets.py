"""Small datasets for tests."""

import hashlib
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

from emlio.formats.tfrecord.scan import scan
from emlio.formats.tfrecord.verify import verify_records
from emlio.prepare.mappings import describe_directory
from emlio.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame

__all__ = ["make_dataset", "numbered_payload", "read_tfrecord", "read_tfrecords", "write_tfrecord"]


def write_tfrecord(path: Path, records: Iterable[bytes]) -> None:
    """Write a TFRecord file of these records."""
    with path.open("wb") as file:
        file.writelines(frame(record) for record in records)


def read_tfrecord(path: Path) -> list[bytes]:
    """Return the data of the records of a file, its lengths and checksums compared."""
    offsets, content = scan(path).offsets, path.read_bytes()
    verify_records(path, offsets)
    return [content[begin + HEADER_BYTES : end - FOOTER_BYTES] for begin, end in pairwise(offsets.tolist())]


def read_tfrecords(directory: Path) -> list[bytes]:
    """Return the data of the records of all shards of a directory, its lengths and checksums compared."""
    return [record for path in sorted(directory.glob("*.tfrecord")) for record in read_tfrecord(path)]


def numbered_payload(record: int, size_bytes: int | None = None) -> bytes:
    """Return a unique record: its number in 8 bytes little-endian, then bytes derived from it.

    Args:
        record: its number in the dataset.
        size_bytes: the record's size, at least 8; by default 8 to 263 bytes, different from record
            to record.
    """
    seed = hashlib.blake2b(record.to_bytes(8, "little"), digest_size=32).digest()
    size = 8 + seed[0] if size_bytes is None else size_bytes
    if size < 8:
        raise ValueError(f"size_bytes must be at least 8, the record's number, got {size}")
    rest = size - 8
    return record.to_bytes(8, "little") + (seed * (rest // len(seed) + 1))[:rest]


def make_dataset(
    directory: Path,
    *,
    records: int,
    shards: int,
    payload: Callable[[int], bytes] | int | None = None,
    mapped: bool = True,
) -> list[bytes]:
    """Make a dataset and return its records in the order of their numbers.

    Records are assigned in runs: the first shard holds the lowest numbers; the lengths of runs
    differ by at most one.

    Args:
        directory: the directory; it is made.
        records: the number of records, at least one for each shard.
        shards: the number of files, named train-00000-of-NNNNN.tfrecord.
        payload: makes a record's bytes from its number; or a number of bytes; or None for small
            records of varied size.
        mapped: whether to write a mapping beside each shard, as `emlio convert` does;
            otherwise there are only the shards.
    """
    if not 1 <= shards <= records:
        raise ValueError(f"shards must be in [1, {records}], got {shards}")
    directory.mkdir(parents=True, exist_ok=True)
    if callable(payload):
        made = [payload(record) for record in range(records)]
    else:
        made = [numbered_payload(record, payload) for record in range(records)]
    for shard in range(shards):
        first, after = shard * records // shards, (shard + 1) * records // shards
        path = directory / f"train-{shard:05d}-of-{shards:05d}.tfrecord"
        write_tfrecord(path, made[first:after])
    if mapped:
        describe_directory(directory)
    return made
