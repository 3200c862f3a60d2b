"""The dataset that a new one begins with."""

import errno
import hashlib
import os
import shutil
from pathlib import Path

from emlio.errors import ConfigError, DatasetError
from emlio.formats.tfrecord.mapping import ShardMapping
from emlio.formats.tfrecord.verify import verify_records
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.index.summary import mappings_of
from emlio.prepare.disk import disk_error
from emlio.prepare.targets.target import UNPACKED_NAME
from emlio.prepare.writing.label_names import LabelNames, listed_names
from emlio.prepare.writing.part_files import BASE, Appended, PartFiles, PartShard, write_document

__all__ = ["appended_dataset", "link_base"]

_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors after which a file is copied: another file system, another owner, no links."""


def appended_dataset(out: Path, old: Path) -> tuple[Appended, LabelNames]:
    """Return what identifies the dataset in a folder, and the names of its labels.

    Raises:
        ConfigError: it cannot be appended to.
        DatasetError: there is none.
    """
    with _opened(out, old) as dataset:
        digest = hashlib.blake2b(digest_size=16)
        for shard in dataset.shards:
            digest.update(f"{shard.records} {shard.size_bytes} {shard.digest}\n".encode())
        return (
            Appended(path=str(old.resolve()), digest=digest.hexdigest(), shards=len(dataset.shards)),
            {**listed_names(old), **dataset.contents.label_names},
        )


def link_base(out: Path, base: Appended, *, verify: bool) -> None:
    """Give the new folder the shards that it does not have yet.

    Args:
        out: the new folder.
        base: the dataset.
        verify: read copies back and compare.

    Raises:
        ConfigError: the dataset has changed.
        DatasetError: it cannot be read, or the disk is full.
    """
    files = PartFiles(out, BASE)
    done = len(files.finished())
    if done == base.shards:
        return
    files.remove_from(done)
    old = Path(base.path)
    if appended_dataset(out, old)[0] != base:
        raise ConfigError(f"append_to: the dataset in {old} has changed since this one was begun. Use overwrite=True")
    with _opened(out, old) as dataset:
        for number, mapping in list(enumerate(mappings_of(dataset)))[done:]:
            _take(files, number, dataset, mapping, verify=verify)


def _opened(out: Path, old: Path) -> Dataset:
    # An index that is missing is made in a scratch folder: the old folder stays as it is.
    dataset = open_dataset(old.name, old, out / UNPACKED_NAME, options={"format": "tfrecord"})
    try:
        if dataset.missing:
            raise ConfigError(f"append_to must be a whole dataset: {old} lacks {dataset.missing[0]}")
        if any(shard.files == 1 for shard in dataset.shards):
            raise ConfigError(f"append_to must have a mapping for each shard. Write them: emlio index --mapping {old}")
    except BaseException:
        dataset.close()
        raise
    return dataset


def _take(files: PartFiles, number: int, dataset: Dataset, mapping: ShardMapping, *, verify: bool) -> None:
    shard = dataset.shards[number]
    source, target = dataset.shard_paths[number], files.shard(number)
    try:
        try:
            os.link(os.path.realpath(source), target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _copy(source, target)
            if verify:
                verify_records(target, shard.offsets)
    except OSError as error:
        raise disk_error(target, shard.size_bytes, error) from error
    if target.stat().st_size != shard.size_bytes:
        raise DatasetError(f"{source}: changed while it was copied")
    write_document(
        files.description(number),
        PartShard(
            size_bytes=shard.size_bytes,
            records=shard.records,
            digest=shard.digest,
            features=mapping.features,
            label_counts=mapping.label_counts,
            label_names=mapping.label_names,
            tokens=mapping.tokens,
        ),
    )


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
