"""Opening a dataset of TFRecord files: finding, indexing and checking its shards.

Covers: shards without a valid index, which are scanned; mappings. Does not cover: other formats
(emlio.shards.opening.choice), later changes of a file (emlio.shards.files.file_table).
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.contents import FieldType, sampled
from emlio.open_limits import refusal_of
from emlio.shards.dataset import Dataset, Shard
from emlio.shards.features import sample_features, spread
from emlio.shards.files.folder import Folder
from emlio.shards.files.parallel import for_each_shard
from emlio.shards.tfrecord.contents import contents_of, schema_of
from emlio.shards.tfrecord.discover import Discovery, discover
from emlio.shards.tfrecord.mapping import ShardMapping, content_digest
from emlio.shards.tfrecord.scan import Framing, scan
from emlio.shards.tfrecord.store import IndexStore
from emlio.units import counted

__all__ = ["open_tfrecords"]

_LOG = logging.getLogger(__name__)
_SAMPLED_SHARDS = 8
_SAMPLED_BYTES = 1 << 22
_SCANS = 4
"""The limit of scans of a shard whose ctime changes during the scan although its content does not.
"""


def open_tfrecords(
    name: str,
    folder: Folder,
    cache_dir: Path | None = None,
    progress: bool = False,
    *,
    options: Mapping[str, str] | None = None,
    rebuild: bool = False,
    use_mappings: bool = True,
) -> Dataset:
    """Open the dataset in a folder.

    Shards without a valid index are scanned, several at a time, and the index is stored.

    Args:
        name: its name in sessions.
        folder: its folder; closed with the dataset. Sub-folders are ignored.
        cache_dir: store new indexes under this folder; by default beside the shards, or in the
            user's cache folder if the shards' folder cannot be written.
        progress: show a line while scanning.
        options: the user's choice of files; see `chosen_files`.
        rebuild: scan everything even where there are indexes.
        use_mappings: if False, ignore existing mappings.

    Raises:
        DatasetError: there is no dataset, or a file of it is invalid.
    """
    found = discover(folder, use_mappings=use_mappings, options=options or {})
    with IndexStore(folder, cache_dir) as store:
        shards = _open_shards(name, folder, found, store, progress=progress, rebuild=rebuild)
    if not any(shard.records for shard in shards):
        raise DatasetError(
            f"dataset directory {folder.path}: must hold records, there are none in its {counted(len(shards), 'shard')}"
        )
    contents = contents_of(shard.mapping for shard in shards if shard.mapping is not None)
    if not contents.schema:
        contents = replace(contents, schema=_sampled_schema(shards))
    return Dataset(name=name, folder=folder, shards=shards, missing=found.missing, contents=contents)


def _open_shards(
    name: str, folder: Folder, found: Discovery, store: IndexStore, *, progress: bool, rebuild: bool
) -> tuple[Shard, ...]:
    """Return the shards on this host, from their indexes if there are any, else scanned."""
    known: dict[str, Shard] = {}
    unknown: list[_Unscanned] = []
    for file in found.present:
        path = folder.path / file
        mapping = found.mappings.get(file)
        status = _stat(folder, file)
        if mapping is not None and mapping.size_bytes != status.st_size:
            raise _changed(path, f"has {status.st_size} bytes, {mapping.size_bytes} in its mapping")
        kept = None
        if not rebuild:
            kept = store.load(file, status, mapped=mapping is not None)
        if kept is None:
            unknown.append(_Unscanned(path=path, status=status, mapping=mapping))
        else:
            known[file] = _shard(path, status, kept.offsets, kept.digest, mapping)

    refused: list[OSError] = []

    def scan_one(shard: _Unscanned, advance: Callable[[int], None]) -> Shard:
        now, framing = _scan_unchanged(folder, shard, advance)
        digest = content_digest(framing)
        made = _shard(shard.path, now, framing.offsets, digest, shard.mapping)
        if (refusal := store.save(made.name, made.offsets, now, digest=digest)) is not None:
            refused.append(refusal)
        return made

    total = sum(shard.status.st_size for shard in unknown)
    scanned = for_each_shard(unknown, scan_one, label=f"indexing {name}", total_bytes=total, progress=progress)
    known.update((shard.name, shard) for shard in scanned)
    if refused:
        _LOG.warning(
            "dataset %s: the indexes of %d of %d shards cannot be saved, so every start builds them again: %s",
            name,
            len(refused),
            len(known),
            refused[0],
        )
    return tuple(known[file] for file in found.present)


def _sampled_schema(shards: tuple[Shard, ...]) -> Mapping[str, FieldType]:
    """Return the features of some records, as far as they can be read; other records may have others."""
    filled = [shard for shard in shards if shard.records and int(np.diff(shard.offsets[:2])[0]) < _SAMPLED_BYTES]
    try:
        return sampled(schema_of(sample_features([filled[place] for place in spread(len(filled), _SAMPLED_SHARDS)])))
    except DatasetError:
        return {}  # what is wrong is said where the records are read


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unscanned:
    """A shard whose records are not known yet."""

    path: Path
    status: os.stat_result
    mapping: ShardMapping | None


def _scan_unchanged(
    folder: Folder, shard: _Unscanned, advance: Callable[[int], None]
) -> tuple[os.stat_result, Framing]:
    """Scan the shard, and return its status, which was the same before and after the scan.

    Raises:
        DatasetError: another process writes to it.
    """
    before = shard.status
    for _ in range(_SCANS):
        framing = scan(shard.path, advance, folder.opener)
        now = _stat(folder, shard.path.name)
        if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            break
        if now.st_ctime_ns == before.st_ctime_ns:
            return now, framing
        before = (
            now  # only the ctime changed: by a hard link, by other permissions, or by a write, so it is scanned again
        )
    raise DatasetError(
        f"shard {shard.path}: changed while it was scanned. Open the dataset when no process writes to it"
    )


def _stat(folder: Folder, name: str) -> os.stat_result:
    try:
        return folder.stat(name)
    except OSError as error:
        raise refusal_of(error, f"shard {folder.path / name}") or DatasetError(
            f"shard {folder.path / name}: cannot be read: {error.strerror or error}"
        ) from error


def _shard(
    path: Path,
    status: os.stat_result,
    offsets: npt.NDArray[np.int64],
    digest: str | None,
    mapping: ShardMapping | None,
) -> Shard:
    """Return a shard after checking that its index and its mapping agree."""
    records = len(offsets) - 1
    if mapping is not None:
        if mapping.records != records:
            raise _changed(path, f"has {records} records in its index, {mapping.records} in its mapping")
        if digest is not None and digest != mapping.digest:
            raise _changed(path, f"has digest {digest}, {mapping.digest} in its mapping")
    known = digest if digest is not None else mapping.digest if mapping is not None else None
    if known is None:
        raise AssertionError("an index without a digest is accepted only for a shard with a mapping")
    return Shard(
        name=path.name,
        path=path,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
        ctime_ns=status.st_ctime_ns,
        records=records,
        digest=known,
        offsets=offsets,
        mapping=mapping,
    )


def _changed(path: Path, how: str) -> DatasetError:
    return DatasetError(
        f"shard {path}: does not match its mapping: it {how}. Restore the file, or write the mapping again: emlio "
        f"index --force --mapping {path.parent}"
    )
