"""TFRecord files as a format among others.

A mapping is taken for a file of its shard, like the index files of other formats. So an index knows
when a mapping was replaced, and a shard is compared with its mapping whenever one of the two is new.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from emlio.checksum import masked_crc32c
from emlio.errors import ConfigError, DatasetError
from emlio.example.arrays import array_names, parts_of
from emlio.example.decode import parse_example
from emlio.formats.contents import TFRECORD, Contents, FieldType, sampled
from emlio.formats.format import Files, Format, Layout, Ranges, ShardFiles
from emlio.formats.record_form import RowForm
from emlio.formats.tfrecord.example_form import ExampleRecords
from emlio.formats.tfrecord.mapping import (
    MOST_MAPPING_BYTES,
    Feature,
    FeatureKind,
    ShardMapping,
    content_digest,
    parse_mapping,
)
from emlio.formats.tfrecord.scan import scan_file
from emlio.formats.tfrecord.shard_names import discover, is_mapping_name, is_tfrecord_name
from emlio.formats.token_form import TOKENS, token_form, token_settings
from emlio.tfrecord import FOOTER_BYTES, HEADER_BYTES

__all__ = ["IGNORED", "TFRecords", "kind_of", "mapping_of", "tfrecords"]

IGNORED: Final = "ignore"
"""The value of the option `mappings` with which shards are found by their names alone."""

_KINDS: Final = {"float": "float32"}
_LENGTH: Final = struct.Struct("<Q")
_SAMPLED_SHARDS: Final = 8
_SAMPLED_RECORDS: Final = 8
_SAMPLED_BYTES: Final = 1 << 22
"""The limits of what is read to learn the features."""


class TFRecords(Format):
    """See `Format`, and `TopFormat`."""

    def owns(self, name: str) -> bool:
        """See `TopFormat`."""
        return is_mapping_name(name) or is_tfrecord_name(name)

    def describes(self, name: str) -> bool:
        """See `TopFormat`."""
        return is_mapping_name(name)

    def claims(self, files: Files) -> bool:
        """See `Format`. Sub-folders are ignored."""
        return any("/" not in name and self.owns(name) for name in files.names)

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        if options.get("mappings", IGNORED) != IGNORED:
            raise ConfigError(f"{where}: mappings must be {IGNORED} or left out, got {options['mappings']!r}")
        numbers = {name: number for number, name in enumerate(files.names) if "/" not in name}
        mapped = [name for name in numbers if is_mapping_name(name) and "mappings" not in options]
        mappings = {name: mapping_of(files, numbers[name]) for name in mapped}
        described = {mapping.file: numbers[name] for name, mapping in mappings.items()}
        found = discover(where, [name for name in numbers if not is_mapping_name(name)], mappings)
        shards: list[ShardFiles] = []
        for name in found.present:
            parts = [numbers[name]]
            if name in found.mappings:
                size = int(files.sizes[numbers[name]])
                _compare(files, numbers[name], "bytes", size, found.mappings[name].size_bytes)
                parts.append(described[name])
            shards.append(ShardFiles(name=name, files=tuple(parts)))
        layout = _told(Layout(shards=tuple(shards), missing=found.missing), found.mappings.values())
        return layout if layout.schema else replace(layout, schema=_sampled_schema(files, shards))

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        number, *described = shard.files
        with files.open(number) as file:
            framing = scan_file(file, int(files.sizes[number]), str(files.path(number)), shard.name)
        offsets, digest = framing.offsets, content_digest(framing)
        for mapping in (mapping_of(files, one) for one in described):
            _compare(files, number, "records", framing.records, mapping.records)
            _compare(files, number, "digest", digest, mapping.digest)
        return Ranges(starts=offsets[:-1], ends=offsets[1:], digest=digest, framed=True)

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        return token_form(contents, fields) if contents.settings else ExampleRecords(fields)


def mapping_of(files: Files, number: int) -> ShardMapping:
    """Return the mapping that a file holds.

    Raises:
        DatasetError: it is none, or cannot be read.
    """
    text = files.read(number, 0, min(int(files.sizes[number]), MOST_MAPPING_BYTES + 1))
    return parse_mapping(text, str(files.path(number)))


def _compare(files: Files, number: int, what: str, has: int | str, told: int | str) -> None:
    if has != told:
        path = str(files.path(number))
        raise DatasetError(
            f"shard {path}: does not match its mapping: it has {_said(what, has)}, {told} in its mapping. Restore the file, or "
            f"write the mapping again: emlio index --force --mapping {path.rpartition('/')[0]}"
        )


def _said(what: str, has: int | str) -> str:
    return f"{has} {what}" if isinstance(has, int) else f"{what} {has}"


def _told(layout: Layout, mappings: Iterable[ShardMapping]) -> Layout:
    """Return a layout with what mappings tell of the records.

    Raises:
        DatasetError: they say that records are tokens of different types.
    """
    tokens = ""
    names: dict[int, str] = {}
    features: dict[str, Feature] = {}
    for mapping in mappings:
        names.update({int(label): name for label, name in (mapping.label_names or {}).items() if label.isdecimal()})
        features.update(mapping.features)
        if mapping.tokens is not None:
            if tokens not in ("", mapping.tokens):
                raise DatasetError(
                    f"shard {mapping.file}: all shards must have tokens of one type, others have {tokens}, this one "
                    f"{mapping.tokens}"
                )
            tokens = mapping.tokens
    return replace(
        layout,
        settings=token_settings(np.dtype(tokens).newbyteorder("<")) if tokens else b"",
        label_names=names,
        schema={TOKENS: FieldType(tokens)} if tokens else _schema(features),
    )


def _schema(features: Mapping[str, Feature]) -> dict[str, FieldType]:
    """Return the columns that these features become."""
    schema = {
        name: FieldType(_KINDS.get(feature.kind, feature.kind), feature.shape) for name, feature in features.items()
    }
    for name in array_names(schema):
        for part in parts_of(name, schema):
            del schema[part]
        schema[name] = FieldType("array")
    return schema


def _sampled_schema(files: Files, shards: Sequence[ShardFiles]) -> Mapping[str, FieldType]:
    """Return the features of the first records of some shards; other records may have others.

    None, if one of them is no `tf.train.Example`. A feature that has different kinds is left out.
    """
    kinds: dict[str, set[FeatureKind]] = {}
    try:
        for shard in shards[:: -(-len(shards) // _SAMPLED_SHARDS)]:
            for record in _first_records(files, shard.files[0]):
                for name, values in parse_example(record).items():
                    kinds.setdefault(name, set()).update(kind_of(value) for value in values[:1])
    except DatasetError:
        return {}  # what is wrong is said where the records are read
    return sampled(
        _schema({name: Feature(kind=found.pop()) for name, found in sorted(kinds.items()) if len(found) == 1})
    )


def kind_of(value: memoryview | int | float) -> FeatureKind:
    """Return the kind of a feature's values, given one."""
    if isinstance(value, memoryview):
        return "bytes"
    return "float" if isinstance(value, float) else "int64"


def _first_records(files: Files, number: int) -> Iterator[bytes]:
    with files.open(number) as file:
        for _ in range(_SAMPLED_RECORDS):
            header = file.read(HEADER_BYTES)
            if len(header) < HEADER_BYTES or masked_crc32c(header[:8]).to_bytes(4, "little") != header[8:]:
                return
            length = _LENGTH.unpack_from(header)[0]
            if length > _SAMPLED_BYTES:
                return
            record = file.read(length)
            if masked_crc32c(record).to_bytes(FOOTER_BYTES, "little") != file.read(FOOTER_BYTES):
                return
            yield record


tfrecords = TFRecords(
    name=TFRECORD.format,
    words="TFRecord files, with mappings or without",
    options={"mappings": f"{IGNORED} to find shards by their names alone"},
)
