"""`emlio index`: index a dataset's shards ahead of time, so that a daemon need not."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from emlio.errors import DatasetError
from emlio.index.dali_index import dali_index_name, find_dali_index, read_dali_index, write_dali_index
from emlio.index.dataset import Dataset
from emlio.index.opening import DatasetPath, open_dataset
from emlio.index.parallel import for_each_shard
from emlio.prepare.mappings import describe_directory
from emlio.ray import ENGINES, RayHosts
from emlio.reading.random_reader import RandomReader, keep_checksums
from emlio.units import counted, format_duration, format_size

__all__ = ["HELP", "add_arguments", "run"]

_TOGETHER = 256
"""Shards of a task on Ray. To look through one may take less than to send a task."""

HELP = "Index datasets of any format, so that a daemon starts without looking through them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "directories", metavar="DIR", nargs="+", help="directory of the dataset, with options if any: DIR?OPTION=VALUE"
    )
    parser.add_argument(
        "--dali", action="store_true", help="also write the .idx files that DALI's TFRecord reader needs"
    )
    parser.add_argument("--force", action="store_true", help="scan all shards again, even if they have indexes")
    parser.add_argument(
        "--checksums",
        action="store_true",
        help="also read every record and keep its checksum, for formats that have none; otherwise a record's checksum is "
        "kept when it is first read",
    )
    parser.add_argument(
        "--mapping",
        action="store_true",
        help="also write a mapping file beside each shard; existing ones are kept unless --force is given",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="threads",
        help="threads: shards are looked through by threads here (default); ray: by all hosts of the Ray cluster at "
        "RAY_ADDRESS, which see DIR under the same path",
    )
    parser.add_argument(
        "--cache-dir",
        metavar="FOLDER",
        type=Path,
        help="directory for indexes (default: ~/.cache/emlio)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Index every directory, and return 1 if any failed. A failure does not stop the others."""
    failed = False
    for text in arguments.directories:
        try:
            failed |= not _index(DatasetPath.parse(text), arguments)
        except DatasetError as error:
            print(f"emlio index: {error}", file=sys.stderr)
            failed = True
    return int(failed)


def _index(place: DatasetPath, arguments: argparse.Namespace) -> bool:
    """Index one directory, and return whether no problem was found."""
    directory = place.directory
    begun = time.monotonic_ns()
    rebuild: bool = arguments.force
    described = 0
    if arguments.mapping and (arguments.force or not any(place.folder.glob("mapping_shard_*.json"))):
        described = len(describe_directory(place.folder, cache_dir=arguments.cache_dir, progress=True, rebuild=rebuild))
        rebuild = False
    with open_dataset(
        directory.name,
        directory,
        arguments.cache_dir,
        progress=True,
        options=place.options,
        rebuild=rebuild,
        engine=RayHosts(together=_TOGETHER) if arguments.engine == "ray" else None,
    ) as dataset:
        facts = [
            f"{counted(len(dataset.shards), 'shard')} of {dataset.contents.format}",
            counted(dataset.records, "record"),
            format_size(dataset.size_bytes),
            f"indexed in {format_duration(time.monotonic_ns() - begun)}",
        ]
        if described:
            facts.append(f"{counted(described, 'mapping')} written")
        if arguments.checksums and not dataset.framed:
            facts.append(f"{counted(_keep_checksums(dataset), 'checksum')} added")
        if arguments.dali:
            facts.append(f"{counted(_write_dali(dataset), 'DALI index', 'DALI indexes')} written")
        if dataset.missing:
            are = "is" if len(dataset.missing) == 1 else "are"
            facts.append(f"{counted(len(dataset.missing), 'shard')} {are} missing, for example {dataset.missing[0]}")
        print(f"{directory}: {', '.join(facts)}")
        return True if arguments.dali else _dali_agrees(dataset)


def _keep_checksums(dataset: Dataset) -> int:
    """Read the records whose checksum is not known, and return how many there were."""

    def read(number: int, advance: Callable[[int], None]) -> int:
        return keep_checksums(reader, number, advance)

    with RandomReader(dataset) as reader:
        added = for_each_shard(
            range(len(dataset.shards)), read, label="reading", total_bytes=dataset.size_bytes, progress=True
        )
    return sum(added)


def _write_dali(dataset: Dataset) -> int:
    if not dataset.framed:
        raise DatasetError(
            f"{dataset.place} must hold TFRecord files for this, its format is {dataset.contents.format}"
        )
    for shard, path in zip(dataset.shards, dataset.shard_paths, strict=True):
        path = path.with_name(dali_index_name(shard.name))
        try:
            write_dali_index(path, shard.offsets)
        except OSError as error:
            raise DatasetError(f"DALI index {path}: cannot be written: {error.strerror or error}") from error
    return len(dataset.shards)


def _dali_agrees(dataset: Dataset) -> bool:
    """Return whether existing DALI indexes match the shards, and report those that do not."""
    agrees = True
    for shard in dataset.shards if dataset.framed and not dataset.files.remote else ():
        path = find_dali_index(dataset.folder_store.path(shard.first_file))
        if path is None:
            continue
        try:
            same = np.array_equal(read_dali_index(path, shard.size_bytes), shard.offsets)
            reason = "" if same else f"DALI index {path}: does not match the records of {shard.name}"
        except DatasetError as error:
            same, reason = False, str(error)
        if not same:
            print(f"emlio index: {reason}. Rewrite it: emlio index --dali {dataset.place}", file=sys.stderr)
            agrees = False
    return agrees
