"""The description of a shard: `mapping_shard_00000.json`, one beside each shard.

The digest is BLAKE2b over the record offsets and the checksums stored in the records' frames. It
distinguishes contents as reliably as CRC32C does, record by record, and needs a scan instead of
reading every byte. It is no protection against deliberate changes.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from emlio.errors import DatasetError
from emlio.formats.tfrecord.scan import Framing
from emlio.tfrecord import FRAME_BYTES
from emlio.tokens import TOKEN_TYPES

__all__ = [
    "MAPPING_VERSION",
    "MOST_MAPPING_BYTES",
    "Feature",
    "FeatureKind",
    "ShardMapping",
    "content_digest",
    "format_mapping",
    "mapping_name",
    "parse_mapping",
    "read_mapping",
]

FeatureKind: TypeAlias = Literal["bytes", "float", "int64"]

MAPPING_VERSION = 1

MOST_MAPPING_BYTES = 64 << 20
"""Parsing takes up to twelve times as much memory, if the text is all short numbers or names."""

_MOST_SHARDS = 1 << 22
_MOST_REASON = 400
_FEATURES = 4096
_LABELS = 1_000_000
_DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature of a shard's records.

    Attributes:
        kind: of its values.
        shape: common to all records, for example (1,) or (3,); None if records differ or it is
            unknown.
    """

    kind: FeatureKind
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMapping:
    """The content of one shard.

    Attributes:
        shard_index: its index among the dataset's shards.
        shard_count: how many shards the dataset has on all hosts.
        file: the shard's file name, in the folder of the mapping.
        size_bytes: the file's size.
        records: how many records it holds.
        digest: `content_digest` of it.
        features: of its records, by name; empty if they are not tf.train.Example.
        label_counts: records by label; None if they were not counted.
        label_names: plain names of labels; None if unknown.
        tokens: the type of the tokens that each record is an array of, such as "uint16"; None if records
            are no tokens, or it is unknown.
        version: of this format.
    """

    shard_index: int
    shard_count: int
    file: str
    size_bytes: int
    records: int
    digest: str
    features: dict[str, Feature] = field(default_factory=dict[str, Feature])
    label_counts: dict[str, int] | None = None
    label_names: dict[str, str] | None = None
    tokens: str | None = None
    version: int = MAPPING_VERSION

    def __post_init__(self) -> None:
        _must(self.version == MAPPING_VERSION, f"version must be {MAPPING_VERSION}, got {self.version}")
        _must(
            1 <= self.shard_count <= _MOST_SHARDS, f"shard_count must be in [1, {_MOST_SHARDS}], got {self.shard_count}"
        )
        inside = 0 <= self.shard_index < self.shard_count
        _must(inside, f"shard_index must be in [0, {self.shard_count}), got {self.shard_index}")
        # A name that leaves the folder would let a mapping refer to any file of this host.
        plain = 0 < len(self.file) <= 255 and not self.file.startswith(".") and not set(self.file) & {"/", "\0"}
        _must(plain, f"file must be a plain file name, got {self.file!r}")
        room = self.size_bytes // FRAME_BYTES
        _must(
            0 <= self.records <= room, f"records must be in [0, {room}] for {self.size_bytes} bytes, got {self.records}"
        )
        _must(bool(_DIGEST.fullmatch(self.digest)), f"digest must be 32 hexadecimal digits, got {self.digest!r}")
        _must(len(self.features) <= _FEATURES, f"there must be at most {_FEATURES} features, got {len(self.features)}")
        counts = self.label_counts or {}
        _must(len(counts) <= _LABELS, f"there must be at most {_LABELS} labels, got {len(counts)}")
        _must(min(counts.values(), default=0) >= 0, "label_counts must not be negative")
        _must(
            len(self.label_names or {}) <= _LABELS,
            f"there must be at most {_LABELS} label names, got {len(self.label_names or {})}",
        )
        known = self.tokens is None or self.tokens in TOKEN_TYPES
        _must(known, f"tokens must be one of {', '.join(TOKEN_TYPES)}, got {str(self.tokens)[:40]!r}")


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def mapping_name(shard_index: int) -> str:
    """Return the file name of a shard's mapping."""
    return f"mapping_shard_{shard_index:05d}.json"


def content_digest(framing: Framing) -> str:
    """Return a digest that distinguishes shards with different records; it needs only a scan."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(np.ascontiguousarray(framing.offsets, dtype="<i8").data)
    digest.update(np.ascontiguousarray(framing.data_crcs, dtype="<u4").data)
    return digest.hexdigest()


def parse_mapping(text: bytes, where: str) -> ShardMapping:
    """Parse a mapping; keys that this version does not know are ignored.

    Args:
        text: JSON.
        where: its name, for errors.

    Raises:
        DatasetError: it is not a mapping.
    """
    if len(text) > MOST_MAPPING_BYTES:
        raise DatasetError(f"mapping {where}: must be at most {MOST_MAPPING_BYTES} bytes, has {len(text)} or more")
    try:
        return msgspec.json.decode(text, type=ShardMapping)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # The reason may repeat text of the file, which can be of any length.
        raise DatasetError(
            f"mapping {where}: {str(error)[:_MOST_REASON]}. Write it again: emlio index --force --mapping "
            f"{where.rpartition('/')[0] or '.'}"
        ) from None


def format_mapping(mapping: ShardMapping) -> bytes:
    """Return a mapping as human-readable JSON."""
    return msgspec.json.format(msgspec.json.encode(mapping, order="deterministic"), indent=1) + b"\n"


def read_mapping(path: Path) -> ShardMapping:
    """Read a mapping's file.

    Raises:
        DatasetError: it cannot be read, or is not a mapping.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MOST_MAPPING_BYTES + 1)
    except OSError as error:
        raise DatasetError(f"mapping {path}: cannot be read: {error.strerror or error}") from error
    return parse_mapping(text, str(path))
