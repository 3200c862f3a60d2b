"""Features of a dataset, sampled from a few records.

Covers: names and kinds of features. Does not cover: decoding batches (emlio.example), counting
labels, which needs every record (emlio convert does it while writing).
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from emlio.errors import DatasetError
from emlio.example.decode import parse_example
from emlio.shards.dataset import Shard
from emlio.shards.tfrecord.mapping import Feature
from emlio.shards.tfrecord.verify import read_records

__all__ = ["sample_features", "spread"]

_Kind: TypeAlias = Literal["bytes", "float", "int64"]
_SAMPLED_RECORDS = 8


def spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` numbers spread evenly over 0..count-1, or all of them if there are fewer."""
    if count <= wanted:
        return list(range(count))
    return [place * (count - 1) // max(wanted - 1, 1) for place in range(wanted)]


def sample_features(shards: Iterable[Shard], wanted: int = _SAMPLED_RECORDS) -> dict[str, Feature]:
    """Return the features of the shards' records; empty if a record is not a tf.train.Example.

    Only a few records of each shard are read, so shapes are not reported. A feature that has
    different kinds in different records is left out.

    Args:
        shards: the shards to sample.
        wanted: records to read from each.

    Raises:
        CorruptRecordError: a sampled record is corrupt.
        DatasetError: a file cannot be read.
    """
    kinds: dict[str, set[_Kind]] = {}
    for shard in shards:
        for record in read_records(shard.path, shard.offsets, spread(shard.records, wanted)):
            try:
                example = parse_example(record)
            except DatasetError:
                return {}
            for name, values in example.items():
                found = kinds.setdefault(name, set())
                found.update(_kind(value) for value in values[:1])
    return {name: Feature(kind=next(iter(found))) for name, found in sorted(kinds.items()) if len(found) == 1}


def _kind(value: memoryview | int | float) -> _Kind:
    if isinstance(value, memoryview):
        return "bytes"
    return "float" if isinstance(value, float) else "int64"
