"""Pictures of a dataset that cannot be decoded.

A feature holds pictures if half or more of its values in the sampled records begin as one. Then all
of its values must be pictures.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from emlio.errors import CorruptRecordError, DatasetError
from emlio.example.decode import parse_example
from emlio.formats.record_form import RowForm
from emlio.formats.registry import form_of
from emlio.images.decoded import picture_decoder
from emlio.images.header import picture_extension
from emlio.index.dataset import Dataset
from emlio.index.parallel import for_each_shard
from emlio.reading.random_reader import RandomReader, Record, spread

__all__ = ["PictureFindings", "Value", "find_bad_pictures", "picture_features", "values_of_record"]

Value: TypeAlias = tuple[str, memoryview | bytes]
"""A feature's name, and bytes in it."""

_SAMPLED = 30

_RECORD = "record"
"""The name of a record that has no features."""


class PictureFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The result of decoding all pictures.

    Attributes:
        features: the features that hold them; none if no sampled record has one.
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
        DatasetError: a file cannot be read.
    """
    decode = picture_decoder()
    with RandomReader(dataset) as reader:
        features = picture_features(_sampled(reader))

        def check(number: int, advance: Callable[[int], None]) -> tuple[int, list[CorruptRecordError]]:
            return _check(reader, number, features, decode, advance)

        numbers, total = range(len(dataset.shards) if features else 0), dataset.size_bytes
        found = for_each_shard(numbers, check, label="decoding", total_bytes=total, progress=progress)
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


def _sampled(reader: RandomReader) -> Iterator[Sequence[Value]]:
    dataset = reader.dataset
    wanted, first = spread(dataset.records, _SAMPLED), 0
    for number, shard in enumerate(dataset.shards):
        local = [record - first for record in wanted if first <= record < first + shard.records]
        first += shard.records
        for found in _records(reader, number, local):
            yield found.values


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """A record: its bytes values with their features, or why it cannot be read or decoded."""

    record: int
    size_bytes: int = 0
    values: Sequence[Value] = ()
    error: CorruptRecordError | None = None


def _check(
    reader: RandomReader,
    number: int,
    features: frozenset[str],
    decode: Callable[[memoryview | bytes], str | None],
    advance: Callable[[int], None],
) -> tuple[int, list[CorruptRecordError]]:
    """Return the number of pictures in a shard, and the errors of its bad records."""
    pictures, bad = 0, list[CorruptRecordError]()
    for found in _records(reader, number, range(reader.dataset.shards[number].records)):
        if found.error is not None:
            bad.append(found.error)
        for name, value in found.values:
            if name not in features:
                continue
            pictures += 1
            fault = decode(value)
            if fault is not None:
                bad.append(reader.error(number, found.record, f"{name}: {fault}"))
                break
        advance(found.size_bytes)
    return pictures, bad


def _records(reader: RandomReader, number: int, wanted: Sequence[int]) -> Iterator[_Found]:
    """Yield these records of a shard; a corrupt one does not end the others."""
    left, form = list(wanted), form_of(reader.dataset.contents, None)
    while left:
        try:
            for record in reader.records(number, left):
                del left[0]
                yield _found(reader, number, form, record)
        except CorruptRecordError as error:
            left = [record for record in left if record != error.record]
            yield _Found(record=error.record, error=error)


def _found(reader: RandomReader, number: int, form: RowForm, record: Record) -> _Found:
    size_bytes = len(record.data)
    if record.fault:
        return _Found(record=record.number, error=reader.error(number, record.number, record.fault))
    try:
        values = list(_bytes_of(form.row(record.data, record.note)))
    except DatasetError as error:
        if not reader.dataset.framed:
            found = reader.error(number, record.number, str(error))
            return _Found(record=record.number, size_bytes=size_bytes, error=found)
        values = [(_RECORD, record.data)]
    return _Found(record=record.number, size_bytes=size_bytes, values=values)


def _bytes_of(columns: Mapping[str, Any]) -> Iterable[Value]:
    for name, value in sorted(columns.items()):
        held: Sequence[Any] = cast("Sequence[Any]", value) if isinstance(value, list) else [value]
        for one in held:
            if isinstance(one, memoryview | bytes):
                yield name, one
