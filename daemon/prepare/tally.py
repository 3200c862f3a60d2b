"""What the records of one shard hold, counted as they pass.

Covers: the features with their kinds and common shapes, records by label. Does not cover: records that are not
tf.train.Example; of those only labels that came with them are counted.
"""

from collections import Counter
from typing import Literal

from emlio.daemon.prepare.source import Record
from emlio.errors import DatasetError
from emlio.example import parse_example
from emlio.shards.mapping import Feature

__all__ = ["LABEL_FEATURE", "Tally"]

LABEL_FEATURE = "image/class/label"
"""Whose values are counted where a record's label did not come with it."""

_MOST_LABELS = 1_000_000
"""As many as a mapping may name: with more, it is no class but a number."""


class Tally:
    """Counts records one by one. Not thread-safe; each shard has its own.

    Args:
        features: what every record is known to hold; None to look into each.
    """

    def __init__(self, features: dict[str, Feature] | None = None) -> None:
        self._looking = features is None
        self._features = dict(features or {})
        self._mixed: set[str] = set()
        self._records = 0
        self._labels: Counter[int] = Counter()

    def add(self, record: Record) -> None:
        """Count one record."""
        label = record.label
        if self._looking:
            found = self._look(record)
            if label is None and found is not None:
                label = found
        self._records += 1
        if label is not None:
            self._labels[label] += 1

    @property
    def features(self) -> dict[str, Feature]:
        """What records hold, by name; empty where a record is no Example, without features of more than one kind."""
        return dict(sorted(self._features.items()))

    @property
    def label_counts(self) -> dict[str, int] | None:
        """Records by label; None where there are no labels."""
        if not 0 < len(self._labels) <= _MOST_LABELS:
            return None
        return {str(label): count for label, count in sorted(self._labels.items())}

    def _look(self, record: Record) -> int | None:
        data = record.parts[0] if len(record.parts) == 1 else b"".join(record.parts)
        try:
            parsed = parse_example(memoryview(data))
        except DatasetError:  # not an Example: raw bytes are a dataset too, one without features
            self._looking = False
            self._features = {}
            return None
        for name, values in parsed.items():
            if not values:
                continue
            kind = _kind(values[0])
            known = self._features.get(name)
            if name in self._mixed:
                continue
            if known is None:
                # One that comes late was missing before: it has no shape that every record has.
                self._features[name] = Feature(kind=kind, shape=None if self._records else (len(values),))
            elif known.kind != kind:
                self._mixed.add(name)
                del self._features[name]
            elif known.shape is not None and known.shape != (len(values),):
                self._features[name] = Feature(kind=known.kind)
        for name in self._features.keys() - parsed.keys():
            self._features[name] = Feature(kind=self._features[name].kind)
        labels = parsed.get(LABEL_FEATURE)
        return labels[0] if labels and len(labels) == 1 and isinstance(labels[0], int) else None


def _kind(value: memoryview | int | float) -> Literal["bytes", "float", "int64"]:
    if isinstance(value, memoryview):
        return "bytes"
    return "float" if isinstance(value, float) else "int64"
