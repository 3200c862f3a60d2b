"""The contents of a dataset: its format, and what is known of its records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from emlio.errors import DatasetError
from emlio.tfrecord import FRAME_BYTES

__all__ = ["TFRECORD", "Contents", "FieldType", "sampled"]

_MOST_SAMPLED = 2048
"""Columns of records that were looked at. Ranks are told all of them in one message."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a column.

    Attributes:
        kind: "bytes", "str", a NumPy type such as "int64", or "array" for arrays whose type the
            records tell.
        shape: of one record's value; None if records differ or it is unknown.
    """

    kind: str
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The format of a dataset's records, and what is known of them.

    Attributes:
        format: its name.
        settings: JSON with what the format needs to decode records; the same at all daemons. For
            TFRecord files empty, or the type of the tokens that their records are.
        label_names: class names by label; empty if unknown.
        schema: columns by name; empty if unknown.
    """

    format: str
    settings: bytes = b""
    label_names: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    schema: Mapping[str, FieldType] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def frame_bytes(self) -> int:
        """The bytes that a stored record has more than its data."""
        return FRAME_BYTES if self.format == TFRECORD.format else 0

    def joined(self, other: "Contents", peer: str) -> "Contents":
        """Return what both know.

        Args:
            other: what another daemon says of the same dataset.
            peer: that daemon, for errors.

        Raises:
            DatasetError: their records are of different formats.
        """
        mine_told, theirs_told = self.settings, other.settings
        if self.format == other.format == TFRECORD.format:
            # Only mappings tell that records are tokens: a daemon without them does not contradict.
            mine_told, theirs_told = mine_told or theirs_told, theirs_told or mine_told
        for what, mine, theirs in (
            ("format", self.format, other.format),
            ("settings", mine_told.decode(errors="replace"), theirs_told.decode(errors="replace")),
        ):
            if mine != theirs:
                raise DatasetError(
                    f"all daemons must serve the dataset in the same format, {peer} has {what} {theirs}, others {mine}"
                )
        names = {**other.label_names, **self.label_names}
        if any(names[label] != name for label, name in other.label_names.items()):
            raise DatasetError(f"all daemons must have the same names for labels, those of {peer} differ")
        schema = {**other.schema, **self.schema}
        return Contents(format=self.format, settings=mine_told, label_names=names, schema=schema)


TFRECORD = Contents(format="tfrecord")


def sampled(columns: Mapping[str, FieldType]) -> Mapping[str, FieldType]:
    """Return the columns of some records; none if they are so many that each record seems to have its own."""
    return columns if len(columns) <= _MOST_SAMPLED else {}
