"""Columns of features, read from all records of a dataset.

Covers: which features there are, the values of one feature of each record, labels and paths without reading files. Does not
cover: keeping them (emlio.index.columns.kept), numbers from the index (matches.py).
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from emlio.errors import ConfigError, DatasetError
from emlio.formats.each_record import LABEL
from emlio.formats.path_text import path_text
from emlio.formats.registry import form_of, has_own_columns
from emlio.index.columns.values import Collected
from emlio.index.dataset import Dataset
from emlio.reading.random_reader import RandomReader, spread

__all__ = ["Reading", "feature_names", "of_notes", "read_features"]

Reading = Callable[[int], None]
"""Called now and then with the number of bytes read; may raise to end the reading."""

_NOTE_LABEL: Final = struct.Struct("<i")
_AT_ONCE: Final = 4096
_SAMPLED_SHARDS: Final = 8
_SAMPLED_RECORDS: Final = 8


def feature_names(dataset: Dataset) -> frozenset[str]:
    """Return the features that records have, by the index and by a few records, and `LABEL` if one stands for it."""
    contents = dataset.contents
    names = set(contents.schema)
    if dataset.framed:  # some of their records were looked at when they were indexed
        return frozenset(names)
    try:
        labels = form_of(contents, [LABEL])
    except ConfigError:
        labels = None
    # Where the index knows all columns, one record tells whether there is a label.
    each = _SAMPLED_RECORDS if has_own_columns(contents) else 1
    filled = [number for number, shard in enumerate(dataset.shards) if shard.records]
    everything = form_of(contents, None)
    with RandomReader(dataset) as reader:
        for place in spread(len(filled), _SAMPLED_SHARDS if each > 1 and not dataset.files.remote else 1):
            number = filled[place]
            for record in reader.records(number, spread(dataset.shards[number].records, each)):
                if each > 1 or not names:
                    names.update(everything.row(record.data, record.note))
                if labels is not None and labels.row(record.data, record.note)[LABEL] is not None:
                    names.add(LABEL)
    return frozenset(names)


def of_notes(dataset: Dataset, names: frozenset[str]) -> bool:
    """Return whether these columns are known of files that are records, without reading them."""
    return (
        names <= {"label", "path"}
        and dataset.notes is not None
        and not has_own_columns(dataset.contents)
        and all(shard.whole_files for shard in dataset.shards)
    )


def read_features(dataset: Dataset, names: frozenset[str], reading: Reading) -> Mapping[str, Collected]:
    """Return the values of features over all records, in the order of shards and numbers in them.

    Raises:
        DatasetError: a record cannot be read or decoded, or has a value that cannot be held.
    """
    collected = {name: Collected(dataset.records) for name in names}
    first, noted = 0, of_notes(dataset, names)
    with RandomReader(dataset) as reader:
        for number, shard in enumerate(dataset.shards):
            rows = _of_notes(dataset, number) if noted else _of_records(reader, number, names, reading)
            for record, values in rows:
                for name, into in collected.items():
                    try:
                        into.put(first + record, values.get(name))
                    except DatasetError as error:
                        raise DatasetError(
                            f"shard {shard.name} of {dataset.place}: record {record}: column {name!r} {error}"
                        ) from None
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


def _of_records(
    reader: RandomReader, number: int, names: frozenset[str], reading: Reading
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    form = form_of(reader.dataset.contents, sorted(names))
    for record in reader.records(number, compare=True):
        if record.fault:
            raise reader.error(number, record.number, record.fault)
        try:
            values = form.row(record.data, record.note)
        except DatasetError as error:
            raise reader.error(number, record.number, str(error)) from None
        reading(len(record.data))
        yield record.number, values
