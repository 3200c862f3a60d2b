"""The records of a dataset for which a predicate holds.

Columns: `__size__`, the bytes of a record; `__shard__`, the name of its shard; `__number__`, its number in the shard; features.
What the index knows costs nothing. For another feature all records are read once, and the column is kept beside the index.
"""

import logging
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from threading import Event
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.arguments import like
from emlio.errors import ClosedError, ConfigError, DatasetError
from emlio.formats.each_record import LABEL
from emlio.formats.path_text import path_text
from emlio.formats.registry import form_of, has_own_columns
from emlio.index.columns import Collected, KeptColumns
from emlio.index.dataset import Dataset
from emlio.planner.choice.matching import Column, Numbers, Texts, match
from emlio.planner.choice.predicate import columns_in, parse_predicate
from emlio.planner.choice.where import digest_matches
from emlio.reading.random_reader import RandomReader, spread
from emlio.units import format_size

__all__ = ["Found", "find_matches"]

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


_LOG = logging.getLogger("emlio.reading")
_NEWS_S: Final = 10.0
_NAMED: Final = 40
_INDEX_COLUMNS: Final = {plain: name for name in ("size", "number", "shard") for plain in (name, f"__{name}__")}
"""The columns that the index has of each record, by their names in predicates."""


class Found(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The records for which a predicate holds.

    Attributes:
        bits: one for each record of the dataset, the lowest of each byte first.
        digests: of each shard's bits, one behind the other.
        identity: of the files whose records were read; empty if the index knew the columns.
    """

    bits: npt.NDArray[np.uint8]
    digests: bytes
    identity: bytes

    @property
    def size_bytes(self) -> int:
        """The memory that it takes."""
        return len(self.bits) + len(self.digests)


def find_matches(
    dataset: Dataset,
    predicate: str,
    *,
    cache_dir: Path | None = None,
    ending: Event | None = None,
    known: Found | None = None,
) -> Found:
    """Return the records of a dataset for which a predicate holds.

    Args:
        dataset: an open one.
        predicate: the predicate.
        cache_dir: the folder of indexes; by default the user's.
        ending: ends the reading of records when it is set.
        known: what was found earlier, which is returned if the files are still the same.

    Raises:
        ConfigError: the predicate is not valid, or names a column that is not there.
        DatasetError: records cannot be read, or changed since the dataset was indexed.
        ClosedError: `ending` was set.
    """
    tree = parse_predicate(predicate)
    wanted = columns_in(tree)
    own = cache(partial(feature_names, dataset))
    index = (name for name in wanted if name in _INDEX_COLUMNS and _is_of_index(dataset, name, own()))
    columns = {name: _of_index(dataset, _INDEX_COLUMNS[name]) for name in index}
    missing = wanted - columns.keys()
    reads = not of_notes(dataset, missing)
    identity = dataset.files.identity() if missing and reads else b""
    if known is not None and known.identity == identity:
        return known
    if missing:
        columns |= _of_features(dataset, missing, own, KeptColumns(dataset, identity, cache_dir), ending or Event())
        if identity and dataset.files.identity() != identity:
            raise DatasetError(f"{dataset.place}: its files must not change while a column of their records is read")
    bits = np.packbits(match(tree, columns), bitorder="little")
    return Found(
        bits=bits, digests=digest_matches(bits, [shard.records for shard in dataset.shards]), identity=identity
    )


def _is_of_index(dataset: Dataset, name: str, own: frozenset[str]) -> bool:
    """Return whether a name of a column of the index means it, and no column of the dataset.

    Raises:
        ConfigError: it may mean either.
    """
    is_plain = not name.startswith("__")
    if name in own and not is_plain:
        raise ConfigError(
            f"{name!r} in a predicate is what the index knows, and {dataset.name} has a column of this name"
        )
    if name not in own and is_plain and has_own_columns(dataset.contents):
        raise ConfigError(
            f"column {name!r} must be written `__{name}__` for what the index knows: in the format "
            f"{dataset.contents.format} each record may have a column of this name"
        )
    return name not in own


def _of_index(dataset: Dataset, of: str) -> Column:
    """Return a column that the index knows."""
    shards = dataset.shards
    records = np.array([shard.records for shard in shards], np.int64)
    if of == "size":
        frame = dataset.contents.frame_bytes
        sizes = [np.asarray(shard.ends) - np.asarray(shard.starts) - frame for shard in shards]
        return Numbers.of(np.concatenate([np.zeros(0, np.int64), *sizes]))
    if of == "number":
        return Numbers.of(np.arange(int(records.sum())) - np.repeat(np.cumsum(records) - records, records))
    codes = np.repeat(np.arange(len(shards), dtype=np.int32), records)
    return Texts(codes=codes, words=[shard.name for shard in shards])


def _of_features(
    dataset: Dataset, wanted: frozenset[str], own: Callable[[], frozenset[str]], kept: KeptColumns, ending: Event
) -> Mapping[str, Column]:
    """Return columns of the records, kept ones or read now."""
    label = "label"
    if not wanted.isdisjoint({"label", LABEL}) and LABEL in own() and "label" not in own():
        label = LABEL  # in pictures in Examples, and where the label has another name
    wanted = frozenset(label if name == "label" else name for name in wanted)
    found = {name: column for name in wanted for known, column in [kept.find(name)] if known}
    unknown = wanted - found.keys()
    if unknown:
        for name in sorted(unknown - own()):
            if not has_own_columns(dataset.contents):
                raise _absent(dataset, name, own())
            _LOG.warning("no record of %s that was looked at has %r: all are read to look for it", dataset.name, name)
        for name, values in read_features(dataset, unknown, _Progress(dataset, unknown, ending).add).items():
            found[name] = values.column(name)
            kept.keep(name, found[name])
    columns = dict[str, Column]()
    for name, column in found.items():
        if column is None and name not in own():
            raise _absent(dataset, name, own())
        if column is None:
            raise ConfigError(f"column {name!r} must hold single numbers or texts, in {dataset.name} no record has one")
        if name == label and isinstance(column, Numbers):
            column = replace(column, names=dataset.contents.label_names)
        columns[name] = column
    if label in columns:
        columns["label"] = columns[label]
    return columns


def _absent(dataset: Dataset, name: str, own: frozenset[str]) -> ConfigError:
    known = sorted({"__size__", "__shard__", "__number__", *own})
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ConfigError(
        f"a predicate must name columns of the dataset, which has {', '.join(known[:_NAMED])}{more}; {dataset.name} has no "
        f"{name!r}{like(name, known)}"
    )


class _Progress:
    """Says in the log how far the reading of a column is."""

    def __init__(self, dataset: Dataset, names: frozenset[str], ending: Event) -> None:
        self._words = f"reading {', '.join(sorted(names))} of {dataset.name}"
        self._total = dataset.size_bytes
        self._ending = ending
        self._done = 0
        self._next_s = time.monotonic() + _NEWS_S
        _LOG.info("%s: %s in all records, once", self._words, format_size(self._total))

    def add(self, size_bytes: int) -> None:
        """Count bytes that were read."""
        self._done += size_bytes
        if self._ending.is_set():
            raise ClosedError(f"{self._words}: ended before all records were read")
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _NEWS_S
            _LOG.info("%s: %.0f %%", self._words, 100 * self._done / max(self._total, 1))
