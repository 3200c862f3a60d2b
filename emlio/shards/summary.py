"""A summary of a dataset, as one value.

Covers: the figures that `emlio inspect` shows. Does not cover: printing them, checking records.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from emlio.errors import DatasetError
from emlio.formats.contents import FieldType
from emlio.formats.npy_header import MOST_HEADER_BYTES, NpyHeader, read_npy_header
from emlio.formats.side_by_side import MOST_SIDE_BY_SIDE, side_by_side
from emlio.formats.whole_file import array_files
from emlio.planner.catalog import Catalog
from emlio.shards.dataset import Dataset
from emlio.shards.features import sample_features
from emlio.shards.tfrecord.mapping import Feature

__all__ = ["RecordSizes", "Summary", "summarise"]

_SAMPLED_SHARDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSizes:
    """The distribution of the records' data sizes, without frames, in bytes."""

    min: int
    mean: float
    p50: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a dataset.

    Attributes:
        directory: of the dataset.
        format: of its records.
        shards: how many of its shards are on this host.
        missing: names of the other shards.
        records: in the shards on this host.
        size_bytes: of the shards' files on this host.
        record_sizes: their distribution.
        fingerprint: of the shards on this host; equal on every host that holds the same shards.
        mapped: whether any of its shards has a mapping.
        features: of the records; empty if they are not tf.train.Example.
        features_sampled: whether the features come from a few records, because no mapping lists
            them.
        label_counts: records by label; None unless every shard's mapping counts them.
        label_names: plain names of labels; None if no mapping lists them.
        advice: what to do if the records are meant otherwise; empty if nothing suggests it.
    """

    directory: str
    format: str
    shards: int
    missing: tuple[str, ...]
    records: int
    size_bytes: int
    record_sizes: RecordSizes
    fingerprint: str
    mapped: bool
    features: dict[str, FieldType]
    features_sampled: bool
    label_counts: dict[str, int] | None
    label_names: dict[str, str] | None
    advice: str


def summarise(dataset: Dataset, *, look_inside: bool = True) -> Summary:
    """Summarise a dataset.

    Args:
        dataset: an open one.
        look_inside: read a few records if no mapping lists their features.

    Raises:
        CorruptRecordError: a sampled record is corrupt.
        DatasetError: a file cannot be read.
    """
    shards = dataset.tfrecord_shards if dataset.checksums is None and dataset.bucket is None else ()
    mappings = [shard.mapping for shard in shards if shard.mapping is not None]
    features: dict[str, FieldType] = {}
    for mapping in mappings:
        features.update(_types(mapping.features))
    if dataset.checksums is not None or dataset.bucket is not None or dataset.contents.settings:
        features = dict(dataset.contents.schema)
    sampled = not features and bool(shards)
    if sampled and look_inside:
        step = max(len(shards) // _SAMPLED_SHARDS, 1)
        features = _types(sample_features(shards[::step][:_SAMPLED_SHARDS]))
    counts: Counter[str] = Counter()
    names: dict[str, str] = {}
    for mapping in mappings:
        counts.update(mapping.label_counts or {})
        names.update(mapping.label_names or {})
    # A total over only some of the shards would be mistaken for a total over all.
    counted = (
        bool(mappings)
        and len(mappings) == len(shards)
        and all(mapping.label_counts is not None for mapping in mappings)
    )
    sizes = np.sort(np.concatenate([shard.ends - shard.starts for shard in dataset.shards]))
    sizes -= dataset.contents.frame_bytes
    return Summary(
        directory=dataset.place,
        format=dataset.contents.format,
        shards=len(dataset.shards),
        missing=dataset.missing,
        records=dataset.records,
        size_bytes=dataset.size_bytes,
        record_sizes=RecordSizes(
            min=int(sizes[0]),
            mean=float(sizes.mean()),
            p50=int(sizes[(len(sizes) - 1) // 2]),
            p99=int(sizes[(len(sizes) - 1) * 99 // 100]),
            max=int(sizes[-1]),
        ),
        fingerprint=Catalog(shards=dataset.entries).fingerprint,
        mapped=bool(mappings),
        features=features,
        features_sampled=sampled and look_inside,
        label_counts=dict(counts) if counted else None,
        label_names=names or {str(label): name for label, name in dataset.contents.label_names.items()} or None,
        advice=_advice(dataset),
    )


def _advice(dataset: Dataset) -> str:
    if dataset.contents.format != array_files.name or dataset.bucket is not None or dataset.records > MOST_SIDE_BY_SIDE:
        return ""
    headers: dict[str, NpyHeader] = {}
    for number, name in enumerate(dataset.files.names):
        try:
            with open(dataset.files.path(number), "rb") as file:
                headers[name] = read_npy_header(file.read(MOST_HEADER_BYTES + 16))
        except (OSError, DatasetError):
            return ""  # an error of the record, when it is read
    return side_by_side(headers)


def _types(features: Mapping[str, Feature]) -> dict[str, FieldType]:
    return {name: FieldType(feature.kind, feature.shape) for name, feature in features.items()}
