"""Counts of a shard's records, collected as they are written."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.example import parse_example
from emlio.formats.tfrecord.mapping import Feature

__all__ = ["LABEL_FEATURE", "FeatureForm", "Record", "Tally"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """One record to be written into a shard.

    Attributes:
        parts: its bytes, in as many pieces as they came; joining large ones would only copy them.
        label: its class, or None.
    """

    parts: tuple[Buffer, ...]
    label: int | None = None


LABEL_FEATURE = "image/class/label"
"""The feature that is counted if a record came without a label."""

_MOST_LABELS = 1_000_000
"""The limit of labels in a mapping; with more, the feature is a number rather than a class."""

FeatureForm: TypeAlias = tuple[Literal["bytes", "float", "int64"], int]
"""The kind of a feature's values in one record, and how many there are: one or more."""


class Tally:
    """A counter of records. Not thread-safe; each shard has its own.

    Args:
        features: known to be in every record; None to parse each record.
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
        self._count(label)

    def add_known(self, forms: Mapping[str, FeatureForm], label: int | None) -> None:
        """Count one record whose features are known, so that it need not be parsed.

        Args:
            forms: of the features that hold values.
            label: its class, or None.
        """
        self._merge(forms)
        self._count(label)

    def _count(self, label: int | None) -> None:
        self._records += 1
        if label is not None:
            self._labels[label] += 1

    @property
    def features(self) -> dict[str, Feature]:
        """The records' features by name, without those of more than one kind.

        It is empty if a record is not an Example.
        """
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
        self._merge({name: (_kind(values[0]), len(values)) for name, values in parsed.items() if values})
        labels = parsed.get(LABEL_FEATURE)
        return labels[0] if labels and len(labels) == 1 and isinstance(labels[0], int) else None

    def _merge(self, forms: Mapping[str, FeatureForm]) -> None:
        for name, (kind, values) in forms.items():
            known = self._features.get(name)
            if name in self._mixed:
                continue
            if known is None:
                # A feature that first appears late was missing before, so it has no shape common to
                # all records.
                self._features[name] = Feature(kind=kind, shape=None if self._records else (values,))
            elif known.kind != kind:
                self._mixed.add(name)
                del self._features[name]
            elif known.shape is not None and known.shape != (values,):
                self._features[name] = Feature(kind=known.kind)
        for name in self._features.keys() - forms.keys():
            self._features[name] = Feature(kind=self._features[name].kind)


def _kind(value: memoryview | int | float) -> Literal["bytes", "float", "int64"]:
    if isinstance(value, memoryview):
        return "bytes"
    return "float" if isinstance(value, float) else "int64"
