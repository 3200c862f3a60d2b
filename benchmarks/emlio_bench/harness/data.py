"""The data of a benchmark: made once, then kept in the page cache.

Covers: making or finding a dataset, loading its files into memory, multiplying or splitting its
shards by hard links. Does not cover: the contents of records (emlio.prepare.synth).
"""

import shutil
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError, DatasetError
from emlio.index.opening import open_dataset
from emlio.prepare.synth import SynthOptions, synthesise
from emlio.tfrecord import FRAME_BYTES
from emlio.units import format_size
from emlio_bench.harness.scenario import DataSpec

__all__ = [
    "data_root",
    "link_copies",
    "make_data",
    "memory_root",
    "read_through",
    "shard_paths",
    "split_evenly",
    "split_shards",
    "warm_cache",
]

_MEMORY: Final = Path("/dev/shm")

_LEAST_SHARD_BYTES: Final = 1 << 20
"""The smallest shard that is made. A small dataset gets fewer shards instead."""

_EVEN: Final = 0.01
"""The share by which the largest of several even parts may exceed the mean."""

_READ_BYTES = 8 << 20


@contextmanager
def data_root(chosen: Path | None) -> Generator[Path, None, None]:
    """Provide the folder for datasets: `chosen`, which keeps them, or a temporary folder."""
    if chosen is not None:
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="emlio-bench-data-") as folder:
        yield Path(folder)


@contextmanager
def memory_root(name: str, needed_bytes: int) -> Generator[Path, None, None]:
    """Provide a temporary folder for datasets in memory.

    Args:
        name: name of the benchmark, for the folder.
        needed_bytes: room that must be free.
    """
    free_bytes = shutil.disk_usage(_MEMORY).free if _MEMORY.is_dir() else 0
    if free_bytes < needed_bytes:
        raise ConfigError(
            f"{_MEMORY} must have room for {format_size(needed_bytes)}, has {format_size(free_bytes)}; choose a folder with "
            "--data, or a smaller --size"
        )
    with tempfile.TemporaryDirectory(prefix=f"emlio-bench-{name}-", dir=_MEMORY) as folder:
        yield Path(folder)


def make_data(spec: DataSpec, root: Path, *, progress: bool) -> Path:
    """Make the dataset below `root`, or find it there from an earlier run, and index it.

    Returns:
        The directory of the dataset.
    """
    directory = root / spec.folder
    options = SynthOptions(
        kind="example" if spec.kind == "example" else "opaque",
        records=spec.records,
        record_bytes=spec.record_bytes,
        shard_bytes=max(-(-(spec.payload_bytes + spec.records * FRAME_BYTES) // spec.shards), _LEAST_SHARD_BYTES),
        seed=1,
    )
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(f"the benchmark's data must have a folder: {root}: {error.strerror or error}") from error
    synthesise(options, directory, progress)
    shard_paths(directory)
    return directory


def shard_paths(directory: Path) -> tuple[Path, ...]:
    """Return the shard files in the dataset's order, and index those that have no index."""
    with open_dataset(directory.name, directory) as dataset:
        return dataset.shard_paths


def warm_cache(directory: Path) -> int:
    """Read all shards once, so that the page cache holds as much of them as it can.

    Returns:
        The size of all shards in bytes.
    """
    return read_through(shard_paths(directory))


def read_through(files: Iterable[Path]) -> int:
    """Read files into the page cache, and return their size in bytes."""
    buffer = bytearray(_READ_BYTES)
    size_bytes = 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                size_bytes += got
    return size_bytes


def link_copies(directory: Path, copies: int) -> Path:
    """Make a dataset that names each shard `copies` times, by hard links.

    It is large, but takes no more memory in the page cache than the original.
    """
    shards = shard_paths(directory)
    linked = directory.with_name(f"{directory.name}-times{copies}")
    linked.mkdir(exist_ok=True)
    count = copies * len(shards)
    for number in range(count):
        link = linked / f"linked-{number:05d}-of-{count:05d}.tfrecord"
        if link.is_symlink() or not link.exists():
            link.unlink(missing_ok=True)
            link.hardlink_to(shards[number % len(shards)].resolve())  # symbolic links to other folders are not served
    shard_paths(linked)
    return linked


def split_shards(directory: Path, parts: int) -> tuple[Path, ...]:
    """Make directories that each hold a part of the dataset's shards, by hard links.

    The parts share no shard, as with daemons that hold no copies of each other's data.

    Args:
        directory: the directory of the dataset.
        parts: the number of parts. Adjacent shards go to different parts.
    """
    shards = shard_paths(directory)
    if not 1 <= parts <= len(shards):
        raise DatasetError(f"{directory}: its {len(shards)} shards must have a shard for each part, got {parts} parts")
    found: list[Path] = []
    for part in range(parts):
        folder = directory.with_name(f"{directory.name}-part{part}of{parts}")
        folder.mkdir(exist_ok=True)
        for shard in shards[part::parts]:
            link = folder / shard.name
            if not link.exists():
                link.hardlink_to(shard.resolve())  # symbolic links to other folders are not served
        shard_paths(folder)
        found.append(folder)
    return tuple(found)


def split_evenly(directory: Path, parts: int) -> tuple[Path, ...]:
    """Split the shards as `split_shards` does, and require parts of equal size.

    In a random order each part is read in proportion to its size. Behind equal lines, all parts
    would wait for the largest one.
    """
    found = split_shards(directory, parts)
    sizes = [sum(path.stat().st_size for path in shard_paths(part)) for part in found]
    if max(sizes) * parts > (1 + _EVEN) * sum(sizes):
        raise DatasetError(
            f"{directory}: its {parts} parts must hold as much as each other to {_EVEN:.0%}, they have {min(sizes):,} to "
            f"{max(sizes):,} bytes; choose shards that can be dealt evenly"
        )
    return found
