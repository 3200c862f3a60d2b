"""Mapping files: writing one, and those of shards that have none."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from emlio.errors import DatasetError
from emlio.example.decode import parse_example
from emlio.formats.tfrecord.mapping import (
    Feature,
    FeatureKind,
    ShardMapping,
    format_mapping,
    mapping_name,
    read_mapping,
)
from emlio.formats.tfrecord.tfrecords import IGNORED, kind_of
from emlio.index.opening import open_dataset
from emlio.reading.random_reader import RandomReader, spread
from emlio.store.atomic_file import write_atomically

__all__ = ["describe_directory", "sampled_features", "write_mapping"]

_OPTIONS = {"format": "tfrecord", "mappings": IGNORED}
_SAMPLED_RECORDS = 8


def write_mapping(directory: Path, mapping: ShardMapping) -> Path:
    """Write a mapping beside its shard atomically, and return its path.

    Raises:
        OSError: the folder cannot be written.
    """
    path = directory / mapping_name(mapping.shard_index)
    write_atomically(path, (format_mapping(mapping),))
    return path


def describe_directory(
    directory: Path, *, cache_dir: Path | None = None, progress: bool = False, rebuild: bool = False
) -> tuple[Path, ...]:
    """Write a mapping beside each shard, replacing existing ones, and return their paths.

    Args:
        directory: the dataset's.
        cache_dir: as for `open_dataset`; mappings are always written beside their shards.
        progress: show a line while scanning.
        rebuild: scan shards even where there are indexes.

    Raises:
        DatasetError: there is no dataset, a file of it is invalid, or the folder cannot be written.
    """
    old = set(directory.glob("mapping_shard_*.json"))
    tokens = _tokens_told(old)
    with open_dataset(directory.name, directory, cache_dir, progress, options=_OPTIONS, rebuild=rebuild) as dataset:
        # Numbered by name, including absent shards, so that hosts with different shards of one
        # dataset use the same numbers.
        names = sorted({shard.name for shard in dataset.shards} | {*dataset.missing})
        places = {name: place for place, name in enumerate(names)}
        with RandomReader(dataset) as reader:
            mappings = [
                ShardMapping(
                    shard_index=places[shard.name],
                    shard_count=len(places),
                    file=shard.name,
                    size_bytes=shard.size_bytes,
                    records=shard.records,
                    digest=shard.digest,
                    features={} if shard.name in tokens else sampled_features(reader, number),
                    tokens=tokens.get(shard.name),
                )
                for number, shard in enumerate(dataset.shards)
            ]
    try:
        written = tuple(write_mapping(directory, mapping) for mapping in mappings)
        for path in old - set(written):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise DatasetError(
            f"mappings cannot be written to {directory}, the folder of the shards: {error.strerror}"
        ) from error
    return written


def sampled_features(reader: RandomReader, shard: int) -> dict[str, Feature]:
    """Return the features of some records of a shard; empty if one is not a tf.train.Example.

    Shapes are not reported. A feature that has different kinds in different records is left out.

    Raises:
        CorruptRecordError: a sampled record is corrupt.
        DatasetError: a file cannot be read.
    """
    kinds: dict[str, set[FeatureKind]] = {}
    for record in reader.records(shard, spread(reader.dataset.shards[shard].records, _SAMPLED_RECORDS)):
        if record.fault:
            raise reader.error(shard, record.number, record.fault)
        try:
            example = parse_example(record.data)
        except DatasetError:
            return {}
        for name, values in example.items():
            kinds.setdefault(name, set()).update(kind_of(value) for value in values[:1])
    return {name: Feature(kind=found.pop()) for name, found in sorted(kinds.items()) if len(found) == 1}


def _tokens_told(paths: Iterable[Path]) -> dict[str, str]:
    """Return the type of the tokens by file, where a mapping that is to be replaced tells it: the records do not."""
    tokens: dict[str, str] = {}
    for path in paths:
        with suppress(DatasetError):
            mapping = read_mapping(path)
            if mapping.tokens is not None:
                tokens[mapping.file] = mapping.tokens
    return tokens
