"""Mappings for existing shards.

Covers: describing a directory's shards as they are now. Does not cover: converting (emlio.prepare),
which writes its own mappings and knows more, such as the number of records per label.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from emlio.errors import DatasetError
from emlio.shards.features import sample_features
from emlio.shards.opening.choice import open_dataset
from emlio.shards.tfrecord.mapping import ShardMapping, read_mapping, write_mapping

__all__ = ["describe_directory"]

_TFRECORDS = {"format": "tfrecord"}


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
    with open_dataset(
        directory.name, directory, cache_dir, progress, options=_TFRECORDS, rebuild=rebuild, use_mappings=False
    ) as dataset:
        # Numbered by name, including absent shards, so that hosts with different shards of one
        # dataset use the same numbers.
        places = {
            name: place
            for place, name in enumerate(sorted({shard.name for shard in dataset.tfrecord_shards} | {*dataset.missing}))
        }
        mappings = [
            ShardMapping(
                shard_index=places[shard.name],
                shard_count=len(places),
                file=shard.name,
                size_bytes=shard.size_bytes,
                records=shard.records,
                digest=shard.digest,
                features={} if shard.name in tokens else sample_features([shard]),
                tokens=tokens.get(shard.name),
            )
            for shard in dataset.tfrecord_shards
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


def _tokens_told(paths: Iterable[Path]) -> dict[str, str]:
    """Return the type of the tokens by file, where a mapping that is to be replaced tells it: the records do not."""
    tokens: dict[str, str] = {}
    for path in paths:
        with suppress(DatasetError):
            mapping = read_mapping(path)
            if mapping.tokens is not None:
                tokens[mapping.file] = mapping.tokens
    return tokens
