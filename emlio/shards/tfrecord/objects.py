"""TFRecord files in a bucket, as a format among others.

A mapping is taken for a file of its shard, like the index files of other formats. So an index knows
when a mapping was replaced, and a shard is compared with its mapping whenever one of the two is new.

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
from emlio.shards.tfrecord.mapping import MOST_MAPPING_BYTES, ShardMapping, content_digest, parse_mapping
from emlio.shards.tfrecord.scan import scan_from

__all__ = ["TFRecordObjects"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TFRecordObjects:
    """See `Format`.

    Attributes:
        tree: the objects; no others are asked about.
        chosen: the user's choice of files.
        name: see `Format`.
        words: see `Format`.
        options: see `Format`.
    """

    tree: ObjectTree
    chosen: Mapping[str, str]
    name: str = TFRECORD.format
    words: str = "TFRecord files"
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def claims(self, files: Files) -> bool:
        """See `Format`. Sub-folders are ignored."""
        return has_shards_named(name for name in files.names if "/" not in name)

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        numbers = {name: number for number, name in enumerate(files.names) if "/" not in name}
        described: dict[str, int] = {}

        def read(name: str) -> ShardMapping:
            mapping = self._mapping(files, numbers[name])
            described[mapping.file] = numbers[name]
            return mapping

        found = discover_objects(where, list(numbers), read, self.chosen)
        shards: list[ShardFiles] = []
        for name in found.present:
            parts = [numbers[name]]
            if name in found.mappings:
                size = int(files.sizes[numbers[name]])
                self._compare(numbers[name], "bytes", size, found.mappings[name].size_bytes)
                parts.append(described[name])
            shards.append(ShardFiles(name=name, files=tuple(parts)))
        contents = contents_of(found.mappings.values())
        return Layout(
            shards=tuple(shards),
            settings=contents.settings,
            label_names=contents.label_names,
            schema=contents.schema,
            missing=found.missing,
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        number, *described = shard.files
        with self.tree.reader(number) as reader:
            framing = scan_from(reader, self.tree.path(number), shard.name)
        offsets, digest = np.asarray(framing.offsets, np.int64), content_digest(framing)
        for mapping in (self._mapping(files, one) for one in described):
            self._compare(number, "records", len(offsets) - 1, mapping.records)
            self._compare(number, "digest", digest, mapping.digest)
        return Ranges(starts=offsets[:-1], ends=offsets[1:], digest=digest)

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RecordForm:
        """See `Format`."""
        return form_of(contents, fields)

    def _mapping(self, files: Files, number: int) -> ShardMapping:
        text = files.read(number, 0, min(int(files.sizes[number]), MOST_MAPPING_BYTES + 1))
        return parse_mapping(text, self.tree.path(number))

    def _compare(self, number: int, what: str, has: int | str, told: int | str) -> None:
        if has != told:
            raise DatasetError(
                f"shard {self.tree.path(number)}: does not match its mapping: it has {what} {has}, {told} in its "
                "mapping. Upload the shard that belongs to the mapping, or a new mapping"
            )
