"""Columns of features, read from all records of a dataset.

Covers: which features there are, the values of one feature of each record, labels and paths without reading files. Does not
cover: keeping them (kept.py), numbers from the index (matches.py).
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from emlio.errors import DatasetError
from emlio.example.decode import parse_example
from emlio.formats.path_text import path_text
from emlio.formats.registry import form_of
from emlio.shards.columns.values import Collected
from emlio.shards.dataset import Dataset, RangeShard
from emlio.shards.features import sample_features
from emlio.shards.range_records import columns_of, read_ranges
from emlio.shards.tfrecord.verify import read_records

__all__ = ["Reading", "feature_names", "read_features"]

Reading = Callable[[int], None]
"""Called now and then with the number of bytes read; may raise to end the reading."""

_NOTE_LABEL: Final = struct.Struct("<i")
_AT_ONCE: Final = 4096
_SAMPLED_SHARDS: Final = 8


def feature_names(dataset: Dataset) -> frozenset[str]:
    """Return the features that records have, by the index or by a few records."""
    if dataset.contents.schema:
        return frozenset(dataset.contents.schema)
    if dataset.checksums is None:
        shards = [shard for shard in dataset.tfrecord_shards if shard.records]
        step = max(len(shards) // _SAMPLED_SHARDS, 1)
        return frozenset(sample_features(shards[::step]))
    form = form_of(dataset.contents, None)
    for number, shard in enumerate(dataset.shards):
        for _, piece in read_ranges(dataset, number, range(min(shard.records, 1))):
            return frozenset(columns_of(form, piece))
    return frozenset()


def read_features(dataset: Dataset, names: frozenset[str], reading: Reading) -> Mapping[str, Collected]:
    """Return the values of features over all records, in the order of shards and numbers in them.

    Raises:
        DatasetError: a record cannot be read or decoded.
    """
    collected = {name: Collected(dataset.records) for name in names}
    first = 0
    for number, shard in enumerate(dataset.shards):
        if (
            names <= {"label", "path"}
            and isinstance(shard, RangeShard)
            and shard.whole_files
            and dataset.notes is not None
        ):
            rows = _of_notes(dataset, number)
        elif dataset.checksums is None:
            rows = _of_examples(dataset, number, reading)
        else:
            rows = _of_ranges(dataset, number, names, reading)
        for record, values in rows:
            for name, into in collected.items():
                if (value := values.get(name)) is not None:
                    into.put(first + record, value)
        first += shard.records
    return collected


def _of_notes(dataset: Dataset, number: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield what is known of files that are records, without reading them."""
    assert dataset.notes is not None
    records = dataset.shards[number].records
    for begin in range(0, records, _AT_ONCE):
        some = np.arange(begin, min(begin + _AT_ONCE, records), dtype=np.int64)
        for record, note in zip(some.tolist(), dataset.notes(number, some), strict=True):
            label = _NOTE_LABEL.unpack_from(note)[0]
            yield record, {"label": None if label < 0 else label, "path": path_text(note[_NOTE_LABEL.size :])}


def _of_examples(dataset: Dataset, number: int, reading: Reading) -> Iterator[tuple[int, Mapping[str, Any]]]:
    shard = dataset.tfrecord_shards[number]
    records = range(shard.records)
    for record, data in zip(records, read_records(shard.path, shard.offsets, records), strict=True):
        try:
            values = parse_example(data)
        except DatasetError as error:
            raise DatasetError(f"{shard.path}: record {record}: {error}") from None
        reading(len(data))
        yield record, values
    _check_unchanged(dataset, number)


def _check_unchanged(dataset: Dataset, number: int) -> None:
    """Refuse values of a file that is not the indexed one: they would be kept as a column of the indexed one."""
    files = dataset.file_table
    try:
        now = os.stat(files.path(number))
    except OSError as error:
        raise DatasetError(f"{files.path(number)}: cannot be read: {error.strerror or error}") from error
    files.check_unchanged(number, now)
    if now.st_ctime_ns != files.ctimes_ns[number]:
        files.check_content(number, dataset.folder)


def _of_ranges(
    dataset: Dataset, number: int, names: frozenset[str], reading: Reading
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    form = form_of(dataset.contents, sorted(names))
    shard = dataset.shards[number]
    for record, piece in read_ranges(dataset, number, range(shard.records)):
        try:
            values = columns_of(form, piece)
        except DatasetError as error:
            raise DatasetError(f"shard {shard.name} of {dataset.place}: record {record}: {error}") from None
        reading(int(piece.ends[0] - piece.starts[0]))
        yield record, values
