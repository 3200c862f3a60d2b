"""Opening a dataset that lies in a bucket.

The objects are listed at each start. An index in the user's cache folder is used for those whose
identity is the same as before; others are indexed again.

Covers: finding the format, the index, the dataset. Does not cover: making an index
(emlio.shards.opening.ranged_dataset), requests (emlio.objects).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from emlio.errors import ConfigError, DatasetError
from emlio.formats.contents import TFRECORD
from emlio.formats.folders.names import format_options, needed_files
from emlio.progress import Progress
from emlio.shards.dataset import Dataset
from emlio.shards.objects.bucket import Bucket, ObjectTree
from emlio.shards.objects.object_table import ObjectTable
from emlio.shards.opening.ranged_dataset import index_place, indexed_dataset, make_index
from emlio.shards.ranges.index import RangeIndex, load_index
from emlio.shards.tfrecord.objects import TFRecordObjects

__all__ = ["list_objects", "open_objects"]

_THREADS = 32
"""Objects indexed at once. Each waits for one request at a time, most of it for the server."""


def list_objects(name: str, bucket: Bucket, *, progress: bool = False) -> ObjectTable:
    """Return the objects of a dataset.

    Raises:
        DatasetError: there are none, or they cannot be listed.
    """
    line = Progress(f"listing {name}", None) if progress else None
    try:
        table = bucket.objects(line.add if line is not None else lambda _: None)
    finally:
        if line is not None:
            line.close()
    if not len(table):
        reason = f"holds only files such as {table.junk[0]!r}" if table.junk else bucket.why_empty()
        raise DatasetError(f"{bucket.address}: must hold a dataset, {reason}")
    return table


def open_objects(
    name: str,
    bucket: Bucket,
    table: ObjectTable,
    cache: Path,
    options: Mapping[str, str],
    *,
    progress: bool = False,
    rebuild: bool = False,
) -> Dataset:
    """Open a dataset.

    Args:
        name: its name in sessions.
        bucket: closed with the dataset.
        table: its objects.
        cache: the folder of its indexes.
        options: the user's: "format", "split", "files", and those of the format.
        progress: show a line while indexing.
        rebuild: index everything again.

    Raises:
        ConfigError: an option is not known.
        DatasetError: there is no dataset, or an object of it is invalid or cannot be read.
    """
    where = str(bucket.address)
    place = index_place(cache, options)
    kept = None if rebuild else load_index(place)
    if kept is not None and not {
        "identities",
        "etags",
        "etag_bounds",
        "modified_s",
        "all_names",
        "all_name_bounds",
    } <= set(kept.arrays):
        kept = None
    if kept is not None and _is_current(kept, table):
        return indexed_dataset(name, bucket, ObjectTable.stored(bucket.address, kept.arrays), kept)
    numbers = needed_files(table.names, options, where)
    everything = ObjectTree(bucket, table)
    tree = everything if numbers is None else ObjectTree(bucket, table.only(numbers), table)
    tfrecords = TFRecordObjects(tree=everything, chosen=options)
    known = format_options(options)
    is_tfrecord = options.get("format") == TFRECORD.format or (
        "format" not in options and not known and tfrecords.claims(tree)
    )
    if is_tfrecord and known:
        raise ConfigError(f"{where}: format {TFRECORD.format} must be given without options")
    index = make_index(
        name,
        everything if is_tfrecord else tree,
        where,
        place,
        options,
        kept,
        unwritten=("identities",),
        chosen=tfrecords if is_tfrecord else None,
        threads=_THREADS,
        progress=progress,
    )
    return indexed_dataset(name, bucket, ObjectTable.stored(bucket.address, index.arrays), index)


def _is_current(index: RangeIndex, table: ObjectTable) -> bool:
    """Return whether an index is of exactly these objects."""
    names, bounds = index.arrays["all_names"], index.arrays["all_name_bounds"]
    if not np.array_equal(bounds, table.names.bounds) or not np.array_equal(names, table.names.text):
        return False
    before = ObjectTable.stored(table.address, index.arrays)
    now = {table.names.raw(number): number for number in range(len(table))}
    return all(
        before.identity(number) == table.identity(now[before.names.raw(number)]) for number in range(len(before))
    )
