"""The contents of a dataset's TFRecord files, as far as mappings tell them."""

from collections.abc import Iterable

from emlio.formats.contents import TFRECORD, Contents, FieldType
from emlio.shards.tfrecord.mapping import ShardMapping
from emlio.wire.limits import MAX_NAME_LENGTH

__all__ = ["contents_of"]

_KINDS = {"float": "float32"}


def contents_of(mappings: Iterable[ShardMapping]) -> Contents:
    """Return what the mappings of shards say of their records."""
    names: dict[int, str] = {}
    schema: dict[str, FieldType] = {}
    for mapping in mappings:
        names.update({int(label): name for label, name in (mapping.label_names or {}).items() if label.isdecimal()})
        for name, feature in mapping.features.items():
            # Longer names cannot be told to ranks, and are found in the records.
            if len(name) <= MAX_NAME_LENGTH:
                schema[name] = FieldType(_KINDS.get(feature.kind, feature.kind), feature.shape)
    return Contents(format=TFRECORD.format, label_names=names, schema=schema)
