"""The contents of a dataset's TFRecord files, as far as mappings tell them."""

from collections.abc import Iterable, Mapping

import numpy as np

from emlio.errors import DatasetError
from emlio.example.arrays import array_names, parts_of
from emlio.formats.contents import TFRECORD, Contents, FieldType
from emlio.formats.token_form import TOKENS, token_settings
from emlio.shards.tfrecord.mapping import Feature, ShardMapping
from emlio.wire.limits import MAX_NAME_LENGTH

__all__ = ["contents_of", "schema_of"]

_KINDS = {"float": "float32"}


def contents_of(mappings: Iterable[ShardMapping]) -> Contents:
    """Return what the mappings of shards say of their records.

    Raises:
        DatasetError: they say that records are tokens of different types.
    """
    settings, tokens = b"", ""
    names: dict[int, str] = {}
    features: dict[str, Feature] = {}
    for mapping in mappings:
        names.update({int(label): name for label, name in (mapping.label_names or {}).items() if label.isdecimal()})
        if mapping.tokens is not None:
            if tokens not in ("", mapping.tokens):
                raise DatasetError(
                    f"shard {mapping.file}: all shards must have tokens of one type, others have {tokens}, this one "
                    f"{mapping.tokens}"
                )
            tokens = mapping.tokens
        features.update(mapping.features)
    schema: Mapping[str, FieldType] = schema_of(features)
    if tokens:
        settings = token_settings(np.dtype(tokens).newbyteorder("<"))
        schema = {TOKENS: FieldType(tokens)}
    return Contents(format=TFRECORD.format, settings=settings, label_names=names, schema=schema)


def schema_of(features: Mapping[str, Feature]) -> dict[str, FieldType]:
    """Return the columns that these features become."""
    # Longer names cannot be told to ranks, and are found in the records.
    schema = {
        name: FieldType(_KINDS.get(feature.kind, feature.kind), feature.shape)
        for name, feature in features.items()
        if len(name) <= MAX_NAME_LENGTH
    }
    for name in array_names(schema):
        for part in parts_of(name, schema):
            del schema[part]
        schema[name] = FieldType("array")
    return schema
