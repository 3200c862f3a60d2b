"""Pictures of a dataset that cannot be decoded.

A feature holds pictures if half or more of its values in the sampled records begin as one. Then all
of its values must be pictures.

Covers: which features hold pictures, decoding all of them. Does not cover: decoding one
(emlio.images.decoded), checksums (emlio.shards.range_records, emlio.shards.tfrecord.verify).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from emlio.errors import CorruptRecordError, DatasetError
from emlio.example.decode import parse_example
from emlio.formats.registry import form_of
from emlio.images.decoded import picture_decoder
from emlio.images.header import picture_extension
from emlio.shards.dataset import Dataset
from emlio.shards.features import spread
from emlio.shards.files.parallel import for_each_shard
from emlio.shards.range_records import columns_of, read_ranges
from emlio.shards.tfrecord.verify import read_records

__all__ = ["PictureFindings", "Value", "find_bad_pictures", "picture_features", "values_of_record"]

Value: TypeAlias = tuple[str, memoryview | bytes]
"""A feature's name, and bytes in it."""

_SAMPLED = 30

_RECORD = "record"
"""The name of a record that has no features."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFindings:
    """The result of decoding all pictures.

    Attributes:
        features: the features that hold them.
        pictures: how many were decoded.
        bad: the records with one that cannot be decoded, or that cannot be read themselves.
    """

    features: tuple[str, ...]
    pictures: int
    bad: tuple[CorruptRecordError, ...]


def find_bad_pictures(dataset: Dataset, *, progress: bool) -> PictureFindings:
    """Decode every picture of a dataset.

    Args:
        dataset: an open one.
        progress: whether a progress line is shown.

    Raises:
        ConfigError: Pillow is not installed.
        DatasetError: the sampled records hold no picture, or a file cannot be read.
    """
    decode = picture_decoder()
    features = picture_features(_sampled(dataset))
    if not features:
        raise DatasetError(f"dataset directory {dataset.place}: nothing to decode, no picture in the sampled records")

    def check(number: int, advance: Callable[[int], None]) -> tuple[int, list[CorruptRecordError]]:
        return _check(dataset, number, features, decode, advance)

    total = dataset.size_bytes
    found = for_each_shard(range(len(dataset.shards)), check, label="decoding", total_bytes=total, progress=progress)
    return PictureFindings(
        features=tuple(sorted(features)),
        pictures=sum(count for count, _ in found),
        bad=tuple(error for _, errors in found for error in errors),
    )


def picture_features(records: Iterable[Sequence[Value]]) -> frozenset[str]:
    """Return the features that hold pictures, judged by the values of a few records."""
    values, pictures = Counter[str](), Counter[str]()
    for record in records:
        for name, value in record:
            values[name] += 1
            pictures[name] += bool(picture_extension(value))
    return frozenset(name for name, count in values.items() if 2 * pictures[name] >= count)


def values_of_record(data: memoryview | bytes) -> list[Value]:
    """Return the bytes in the features of a tf.train.Example; another record is one value itself."""
    try:
        return list(_bytes_of(parse_example(data)))
    except DatasetError:
        return [(_RECORD, data)]


def _sampled(dataset: Dataset) -> Iterator[Sequence[Value]]:
    wanted, first = spread(dataset.records, _SAMPLED), 0
    for number, shard in enumerate(dataset.shards):
        local = [record - first for record in wanted if first <= record < first + shard.records]
        first += shard.records
        for found in _records(dataset, number, local):
            yield found.values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A record: its bytes values with their features, or why it cannot be read or decoded."""

    record: int
    size_bytes: int = 0
    values: Sequence[Value] = ()
    error: CorruptRecordError | None = None


def _check(
    dataset: Dataset,
    number: int,
    features: frozenset[str],
    decode: Callable[[memoryview | bytes], str | None],
    advance: Callable[[int], None],
) -> tuple[int, list[CorruptRecordError]]:
    """Return the number of pictures in a shard, and the errors of its bad records."""
    pictures, bad = 0, list[CorruptRecordError]()
    for found in _records(dataset, number, range(dataset.shards[number].records)):
        if found.error is not None:
            bad.append(found.error)
        for name, value in found.values:
            if name not in features:
                continue
            pictures += 1
            fault = decode(value)
            if fault is not None:
                bad.append(_error(dataset, number, found.record, f"{name}: {fault}"))
                break
        advance(found.size_bytes)
    return pictures, bad


def _records(dataset: Dataset, number: int, wanted: Sequence[int]) -> Iterator[_Found]:
    """Yield these records of a shard; a corrupt one does not end the others."""
    left = list(wanted)
    read = _of_ranges if dataset.checksums is not None else _of_frames
    while left:
        try:
            for found in read(dataset, number, left):
                del left[0]
                yield found
        except CorruptRecordError as error:
            del left[0]
            yield _Found(record=error.record, error=error)


def _of_frames(dataset: Dataset, number: int, wanted: Sequence[int]) -> Iterator[_Found]:
    shard = dataset.tfrecord_shards[number]
    records = list(wanted)
    for record, data in zip(records, read_records(shard.path, shard.offsets, records), strict=True):
        yield _Found(record=record, size_bytes=len(data), values=values_of_record(data))


def _of_ranges(dataset: Dataset, number: int, wanted: Sequence[int]) -> Iterator[_Found]:
    form = form_of(dataset.contents, None)
    for record, piece in read_ranges(dataset, number, list(wanted)):
        size_bytes = int(piece.ends[0] - piece.starts[0])
        try:
            columns = columns_of(form, piece)
        except DatasetError as error:
            found = _error(dataset, number, record, str(error))
            yield _Found(record=record, size_bytes=size_bytes, error=found)
        else:
            yield _Found(record=record, size_bytes=size_bytes, values=list(_bytes_of(columns)))


def _bytes_of(columns: Mapping[str, Any]) -> Iterable[Value]:
    for name, value in sorted(columns.items()):
        held: Sequence[Any] = cast("Sequence[Any]", value) if isinstance(value, list) else [value]
        for one in held:
            if isinstance(one, memoryview | bytes):
                yield name, one


def _error(dataset: Dataset, number: int, record: int, reason: str) -> CorruptRecordError:
    shard = dataset.shards[number]
    path: Path | str
    if dataset.checksums is None:
        held = dataset.tfrecord_shards[number]
        path, offset = held.path, int(held.offsets[record])
    else:
        path = dataset.files.path(int(shard.files_of(number, np.array([record], np.int64))[0]))
        offset = int(shard.starts[record])
    return CorruptRecordError(
        f"{path}: record {record} at offset {offset}: {reason}", shard=shard.name, record=record, offset=offset
    )
