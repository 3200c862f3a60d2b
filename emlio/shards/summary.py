"""A dataset at a glance.

Covers: the figures `emlio inspect` shows, as one value. Does not cover: printing them, checking records.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from emlio.planner.catalog import Catalog
from emlio.shards.dataset import Dataset
from emlio.shards.features import sample_features
from emlio.shards.mapping import Feature
from emlio.tfrecord import FRAME_BYTES

__all__ = ["RecordSizes", "Summary", "summarise"]

_SAMPLED_SHARDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSizes:
    """How large the records' data are, without their frames; in bytes."""

    min: int
    mean: float
    p50: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a dataset is.

    Attributes:
        directory: where it lies.
        shards: how many of its shards are here.
        missing: names of those that are not.
        records: in the shards here.
        size_bytes: of the shards' files here.
        record_sizes: how they are spread.
        fingerprint: of the shards here; the same on every host that holds the same.
        mapped: whether its shards are described by mappings.
        features: what records hold; empty where they are not tf.train.Example.
        features_sampled: whether a few records were looked at, because no mapping tells.
        label_counts: records by label; None where no mapping tells.
        label_names: what labels are called; None where no mapping tells.
    """

    directory: str
    shards: int
    missing: tuple[str, ...]
    records: int
    size_bytes: int
    record_sizes: RecordSizes
    fingerprint: str
    mapped: bool
    features: dict[str, Feature]
    features_sampled: bool
    label_counts: dict[str, int] | None
    label_names: dict[str, str] | None


def summarise(dataset: Dataset, *, look_inside: bool = True) -> Summary:
    """Look a dataset over.

    Args:
        dataset: an open one.
        look_inside: read a few records where no mapping says what they hold.

    Raises:
        CorruptRecordError: a record that was looked at is not what was written.
        DatasetError: a file cannot be read.
    """
    shards = dataset.shards
    mappings = [shard.mapping for shard in shards if shard.mapping is not None]
    features: dict[str, Feature] = {}
    for mapping in mappings:
        features.update(mapping.features)
    sampled = not features
    if sampled and look_inside:
        step = max(len(shards) // _SAMPLED_SHARDS, 1)
        features = sample_features(shards[::step][:_SAMPLED_SHARDS])
    counts: Counter[str] = Counter()
    names: dict[str, str] = {}
    for mapping in mappings:
        counts.update(mapping.label_counts or {})
        names.update(mapping.label_names or {})
    # A total over some of the shards would be mistaken for a total over all.
    counted = len(mappings) == len(shards) and all(mapping.label_counts is not None for mapping in mappings)
    sizes = np.sort(np.concatenate([np.diff(shard.offsets) for shard in shards]) - FRAME_BYTES)
    return Summary(
        directory=str(dataset.directory),
        shards=len(shards),
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
        label_names=names or None,
    )
