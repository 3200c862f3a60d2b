"""The columns that all records of a dataset have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from typing_extensions import Buffer

from emlio.errors import ConfigError
from emlio.example import FeatureValue, example_parts
from emlio.formats.tfrecord.mapping import Feature
from emlio.prepare.targets.tally import LABEL_FEATURE, FeatureForm, Record, Tally
from emlio.prepare.writing.values import KINDS, Kind, features_of, form_of_feature, kind_of, may_be, plain

__all__ = ["RAW", "Columns", "EncodedRecord", "check_features", "encode_record", "kept_columns", "parse_schema"]

_LARGE_BYTES = 32 << 10
"""Smaller pieces are joined: that takes less time than writing each of them."""

_USUAL: Final[Mapping[type, Kind]] = {bytes: "bytes", float: "float32", int: "int64"}
"""Types that are features as they are."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of every record.

    Attributes:
        kinds: by name; empty if records are raw bytes.
        named: whether the user named them, so that values may be converted to their kinds.
    """

    kinds: Mapping[str, Kind]
    named: bool = False

    @property
    def source(self) -> str:
        """Their origin, for errors."""
        return "in the schema" if self.named else "in the first record"


RAW = Columns({})
"""Records are bytes that are not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedRecord:
    """A record's bytes, and what is counted of it.

    Attributes:
        parts: its bytes, in pieces that do not change.
        size_bytes: of all of them.
        columns: those it was encoded with.
        forms: of its features; None for a raw record.
        label: its class, or None.
    """

    parts: tuple[bytes | memoryview, ...]
    size_bytes: int
    columns: Columns
    forms: Mapping[str, FeatureForm] | None = None
    label: int | None = None

    def count(self, tally: Tally) -> None:
        """Count it."""
        if self.forms is None:
            tally.add(Record(parts=self.parts))
        else:
            tally.add_known({name: form for name, form in self.forms.items() if form[1]}, self.label)


def parse_schema(schema: Mapping[str, str] | None) -> Columns | None:
    """Return the columns that a user named; None for None.

    Raises:
        ConfigError: it names none, or a kind that is not known.
    """
    if schema is None:
        return None
    if not isinstance(schema, Mapping) or not schema:  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigError(f"schema must be a dict with at least one column, got {schema!r}")
    for name, kind in schema.items():
        if not isinstance(name, str) or kind not in KINDS:  # pyright: ignore[reportUnnecessaryIsInstance] - likewise
            raise ConfigError(f"schema: a column's kind must be one of {', '.join(KINDS)}, got {kind!r} for {name!r}")
    return Columns({name: cast("Kind", kind) for name, kind in schema.items()}, named=True)


def kept_columns(kinds: Mapping[str, str]) -> Columns:
    """Return the columns of a shard that an earlier run finished."""
    return Columns({name: cast("Kind", kind) for name, kind in kinds.items()}) if kinds else RAW


def encode_record(record: object, number: int, columns: Columns | None) -> EncodedRecord:
    """Return a record's bytes.

    Args:
        record: a mapping of columns, or bytes.
        number: the record's, for errors.
        columns: those it must have; None if it is the first record.

    Raises:
        ConfigError: it has other columns, or a value that cannot be stored.
    """
    if isinstance(record, bytes | bytearray | memoryview):
        if columns is not None and columns.kinds:
            raise ConfigError(
                f"record {number}: must have the columns {_names(columns.kinds)} {columns.source}, got raw bytes"
            )
        data = bytes(cast("Buffer", record))
        return EncodedRecord(parts=(data,), size_bytes=len(data), columns=RAW)
    if not isinstance(record, Mapping):
        raise ConfigError(f"record {number}: must be a dict of columns, or bytes, got {type(record).__name__}")
    if columns is not None and not columns.kinds:
        raise ConfigError(f"record {number}: must be raw bytes as the first record, got a dict")
    given = cast("Mapping[object, object]", record)
    _check_names(given, number, columns)
    features: dict[str, FeatureValue] = {}
    kinds: dict[str, Kind] = {}
    for name, value in cast("Mapping[str, object]", given).items():
        try:
            made, kinds[name] = _column(name, value, columns)
            doubled = features.keys() & made.keys()
            if doubled:
                raise ConfigError(f"an array's features must not have the name of another column, {min(doubled)!r}")
        except ConfigError as error:
            raise ConfigError(f"record {number}, column {name!r}: {error}") from error
        features.update(made)
    try:
        parts = example_parts(features)
    except ConfigError as error:
        raise ConfigError(f"record {number}: {error}") from error
    size = sum(map(len, parts))
    label = features.get(LABEL_FEATURE)
    return EncodedRecord(
        parts=_joined(parts),
        size_bytes=size,
        columns=Columns(kinds) if columns is None else columns,
        forms={name: form_of_feature(value) for name, value in features.items()},
        label=_single_label(label),
    )


def check_features(record: EncodedRecord, number: int, features: Mapping[str, Feature], where: str) -> None:
    """Check that a record can be appended to a dataset.

    Args:
        record: the first new record.
        number: its number.
        features: of the records that are there.
        where: the path of the dataset, for errors.

    Raises:
        ConfigError: the dataset's records have other features.
    """
    if not features:
        if record.forms is not None:
            raise ConfigError(f"record {number}: must be raw bytes as the records of {where}, got a dict")
        return
    found = record.forms
    if found is None:
        tally = Tally()
        record.count(tally)
        found = {name: (feature.kind, 1) for name, feature in tally.features.items()}
        if not found:
            raise ConfigError(
                f"record {number}: must be a tf.train.Example, or a dict, as the records of {where}, got other bytes"
            )
    for name in sorted(features.keys() | found.keys()):
        there = features[name].kind if name in features else "no such feature"
        here = found[name][0] if name in found else "no such feature"
        if here != there:
            raise ConfigError(
                f"record {number}: must have the features of the records in {where}. Feature {name!r}: {there} there, "
                f"{here} here"
            )


def _single_label(label: FeatureValue | None) -> int | None:
    """Return a label that is one whole number, alone or in a list or array, as readers of it count it."""
    if isinstance(label, np.ndarray):
        label = label.tolist()
    if isinstance(label, list) and len(label) == 1:
        label = label[0]
    return label if isinstance(label, int) else None


def _column(name: str, value: object, columns: Columns | None) -> tuple[dict[str, FeatureValue], Kind]:
    """Return a value's features and its column's kind."""
    if columns is not None and _USUAL.get(type(value)) == columns.kinds[name]:
        return {name: cast("bytes | int | float", value)}, columns.kinds[name]
    value = plain(value)
    kind = kind_of(value) if columns is None else columns.kinds[name]
    if kind is None:
        raise ConfigError("an empty list in the first record has no kind; name the kinds of all columns with schema=")
    if columns is not None and not may_be(value, kind, convert=columns.named):
        hint = "" if columns.named else ". To convert values, name the kinds of all columns with schema="
        raise ConfigError(f"must be {kind} as {columns.source}, got {_shown(value)}{hint}")
    return features_of(name, value, kind), kind


def _joined(parts: list[bytes | memoryview]) -> tuple[bytes | memoryview, ...]:
    """Return the same bytes in fewer pieces; large ones are not copied."""
    joined: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for part in parts:
        if len(part) < _LARGE_BYTES:
            small.append(part)
        else:
            joined += (b"".join(small), part)
            small = []
    return (*joined, b"".join(small))


def _check_names(record: Mapping[object, object], number: int, columns: Columns | None) -> None:
    if columns is not None and record.keys() == columns.kinds.keys():
        return
    if not record:
        raise ConfigError(f"record {number}: must have at least one column, has none")
    for name in record:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"record {number}: a column's name must be text, got {name!r}")
    if columns is None:
        return
    names = cast("Mapping[str, object]", record)
    lacking, more = columns.kinds.keys() - names.keys(), names.keys() - columns.kinds.keys()
    has = ", ".join(
        words
        for words in (f"lacks {_names(lacking)}" if lacking else "", f"has also {_names(more)}" if more else "")
        if words
    )
    raise ConfigError(f"record {number}: must have the columns {_names(columns.kinds)} {columns.source}, {has}")


def _names(names: "Mapping[str, object] | set[str]") -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _shown(value: Any) -> str:
    kind = kind_of(value)
    if hasattr(value, "dtype"):
        return f"an array of {value.dtype} with shape {value.shape}"
    return f"{kind}: {value!r:.80}" if kind is not None else "an empty list"
