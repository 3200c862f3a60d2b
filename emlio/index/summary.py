"""A summary of a dataset, as one value."""

from collections import Counter

import msgspec
import numpy as np

from emlio.errors import DatasetError
from emlio.formats.array_rows import MOST_SIDE_BY_SIDE, header_of, side_by_side
from emlio.formats.contents import FieldType
from emlio.formats.tfrecord.mapping import ShardMapping
from emlio.formats.tfrecord.tfrecords import mapping_of
from emlio.formats.whole_file import array_files
from emlio.index.dataset import Dataset
from emlio.planner.catalog import Catalog

__all__ = ["RecordSizes", "Summary", "mappings_of", "summarise"]


class RecordSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of the records' data sizes, without frames, in bytes."""

    min: int
    mean: float
    p50: int
    p99: int
    max: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
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


def summarise(dataset: Dataset) -> Summary:
    """Summarise a dataset.

    Raises:
        DatasetError: a mapping cannot be read.
    """
    mappings = mappings_of(dataset)
    counts: Counter[str] = Counter()
    names: dict[str, str] = {}
    for mapping in mappings:
        counts.update(mapping.label_counts or {})
        names.update(mapping.label_names or {})
    # A total over only some of the shards would be mistaken for a total over all.
    counted = len(mappings) == len(dataset.shards) and all(mapping.label_counts is not None for mapping in mappings)
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
            p99=int(sizes[-(len(sizes) // 100) - 1]),
            max=int(sizes[-1]),
        ),
        fingerprint=Catalog(shards=dataset.entries).fingerprint,
        mapped=bool(mappings),
        features=dict(dataset.contents.schema),
        features_sampled=dataset.framed and not dataset.contents.settings and not any(one.features for one in mappings),
        label_counts=dict(counts) if counted else None,
        label_names=names or {str(label): name for label, name in dataset.contents.label_names.items()} or None,
        advice=_advice(dataset),
    )


def mappings_of(dataset: Dataset) -> list[ShardMapping]:
    """Return the mappings of the shards that have one; only TFRecord files have.

    Raises:
        DatasetError: one cannot be read.
    """
    described = [shard.first_file + 1 for shard in dataset.shards if dataset.framed and shard.files > 1]
    return [mapping_of(dataset.files, number) for number in described]


def _advice(dataset: Dataset) -> str:
    many = dataset.records > MOST_SIDE_BY_SIDE
    if dataset.contents.format != array_files.name or dataset.files.remote or many:
        return ""
    try:
        return side_by_side({name: header_of(dataset.files, number) for number, name in enumerate(dataset.files.names)})
    except DatasetError:
        return ""  # an error of the record, when it is read
