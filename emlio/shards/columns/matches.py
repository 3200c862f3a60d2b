"""The records of a dataset for which a predicate holds.

Columns: `size`, the bytes of a record; `shard`, the name of its shard; `number`, its number in the shard; and features. What
the index knows costs nothing. For another feature all records are read once, and the column is kept beside the index.

Covers: finding the columns of a predicate, and its matches as bits. Does not cover: the language
(emlio.planner.choice.predicate), reading features (features.py).
"""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.arguments import like
from emlio.errors import ClosedError, ConfigError
from emlio.formats.each_record import LABEL
from emlio.planner.choice.matching import Column, Numbers, Texts, match
from emlio.planner.choice.predicate import columns_in, parse_predicate
from emlio.shards.columns.features import feature_names, read_features
from emlio.shards.columns.kept import KeptColumns
from emlio.shards.dataset import Dataset
from emlio.units import format_size

__all__ = ["find_matches"]

_LOG = logging.getLogger("emlio.shards")
_NEWS_S: Final = 10.0
_NAMED: Final = 40


def find_matches(
    dataset: Dataset, predicate: str, *, cache_dir: Path | None = None, ending: Event | None = None
) -> npt.NDArray[np.uint8]:
    """Return a bit for each record of a dataset, the lowest of each byte first.

    Args:
        dataset: an open one.
        predicate: the predicate.
        cache_dir: the folder of indexes; by default the user's.
        ending: ends the reading of records when it is set.

    Raises:
        ConfigError: the predicate is not valid, or names a column that is not there.
        DatasetError: records cannot be read.
        ClosedError: `ending` was set.
    """
    tree = parse_predicate(predicate)
    wanted = columns_in(tree)
    found = _of_index(dataset, wanted)
    missing = wanted - found.keys()
    if missing:
        found |= _of_features(dataset, missing, cache_dir, ending or Event())
    return np.packbits(match(tree, found), bitorder="little")


def _of_index(dataset: Dataset, wanted: frozenset[str]) -> dict[str, Column]:
    """Return the wanted columns that the index knows."""
    shards = dataset.shards
    records = np.array([shard.records for shard in shards], np.int64)
    found = dict[str, Column]()
    if "size" in wanted:
        frame = dataset.contents.frame_bytes
        sizes = [np.asarray(shard.ends) - np.asarray(shard.starts) - frame for shard in shards]
        found["size"] = Numbers(values=np.concatenate([np.zeros(0, np.int64), *sizes]))
    if "number" in wanted:
        numbers = np.arange(int(records.sum())) - np.repeat(np.cumsum(records) - records, records)
        found["number"] = Numbers(values=numbers)
    if "shard" in wanted:
        codes = np.repeat(np.arange(len(shards), dtype=np.int32), records)
        found["shard"] = Texts(codes=codes, words=[shard.name for shard in shards])
    return found


def _of_features(
    dataset: Dataset, wanted: frozenset[str], cache_dir: Path | None, ending: Event
) -> Mapping[str, Column]:
    kept = KeptColumns(dataset, cache_dir)
    found = dict[str, Column | None]()
    label = _label_feature(dataset, wanted)
    wanted = frozenset(label if name == "label" else name for name in wanted)
    for name in wanted:
        known, column = kept.find(name)
        if known:
            found[name] = column
    unknown = wanted - found.keys()
    if unknown:
        there = feature_names(dataset)
        for name in sorted(unknown - there):
            _refuse(dataset, name, there)
        for name, values in read_features(dataset, frozenset(unknown), _Progress(dataset, unknown, ending).add).items():
            found[name] = values.column(name)
            kept.keep(name, found[name])
    columns = dict[str, Column]()
    for name, column in found.items():
        if column is None:
            raise ConfigError(
                f"column {name!r} must hold single numbers or texts of at most 1 KiB, in {dataset.name} no record has one"
            )
        if name == label and isinstance(column, Numbers):
            column = Numbers(values=column.values, absent=column.absent, names=dataset.contents.label_names)
        columns[name] = column
    if label in columns:
        columns["label"] = columns[label]
    return columns


def _label_feature(dataset: Dataset, wanted: frozenset[str]) -> str:
    """Return the feature that holds the class of a record: of pictures in Examples it has a longer name."""
    if wanted.isdisjoint({"label", LABEL}):
        return "label"
    there = feature_names(dataset)
    return LABEL if LABEL in there and "label" not in there else "label"


def _refuse(dataset: Dataset, name: str, there: frozenset[str]) -> None:
    known = sorted({"size", "shard", "number", *there})
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    raise ConfigError(
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
