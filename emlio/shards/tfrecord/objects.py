"""TFRecord files in a bucket, as a format among others.

Covers: which objects are shards, their records, digests equal to those of the same files in a
folder, what mappings say. Does not cover: TFRecord files in a folder (emlio.shards.opening.tfrecord_dataset).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from emlio.errors import DatasetError
from emlio.formats.contents import TFRECORD, Contents
from emlio.formats.format import Files, Layout, Ranges, ShardFiles
from emlio.formats.record_form import RecordForm
from emlio.formats.registry import form_of
from emlio.shards.objects.bucket import ObjectTree
from emlio.shards.tfrecord.contents import contents_of
from emlio.shards.tfrecord.discover import discover_objects, has_shards_named
from emlio.shards.tfrecord.mapping import ShardMapping, content_digest, parse_mapping
from emlio.shards.tfrecord.scan import scan_from

__all__ = ["TFRecordObjects"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TFRecordObjects:
    """See `Format`.

    Attributes:
        tree: the objects; no others are asked about.
        name: see `Format`.
        words: see `Format`.
        options: see `Format`.
    """

    tree: ObjectTree
    name: str = TFRECORD.format
    words: str = "TFRecord files"
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def claims(self, files: Files) -> bool:
        """See `Format`. Sub-folders are ignored."""
        return has_shards_named(name for name in files.names if "/" not in name)

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        numbers = {name: number for number, name in enumerate(files.names) if "/" not in name}

        def read(name: str) -> ShardMapping:
            number = numbers[name]
            return parse_mapping(files.read(number, 0, int(files.sizes[number])), f"{where}/{name}")

        found = discover_objects(where, list(numbers), read)
        for name, mapping in found.mappings.items():
            size = int(files.sizes[numbers[name]])
            if size != mapping.size_bytes:
                raise DatasetError(
                    f"shard {where}/{name}: does not match its mapping: it has {size} bytes, {mapping.size_bytes} in "
                    "its mapping. Restore the file, or write the mapping again"
                )
        contents = contents_of(found.mappings.values())
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(numbers[name],)) for name in found.present),
            label_names=contents.label_names,
            schema=contents.schema,
            missing=found.missing,
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        (number,) = shard.files
        with self.tree.reader(number) as reader:
            framing = scan_from(reader, self.tree.path(number), shard.name)
        offsets = np.asarray(framing.offsets, np.int64)
        return Ranges(starts=offsets[:-1], ends=offsets[1:], digest=content_digest(framing))

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RecordForm:
        """See `Format`."""
        return form_of(contents, fields)
