"""The data of a benchmark: made once, then kept in the page cache.

Covers: making or finding a dataset, bringing its files into memory, giving it more shards by links, splitting it likewise. Does
not cover: what the records hold (emlio.daemon.prepare.synth).
"""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from emlio.benchmarks.scenario import DataSpec
from emlio.daemon.prepare.synth import SynthOptions, synthesise
from emlio.errors import DatasetError
from emlio.shards.dataset import open_dataset
from emlio.tfrecord import FRAME_BYTES

__all__ = ["data_root", "link_copies", "make_data", "shard_paths", "split_evenly", "split_shards", "warm_cache"]

_LEAST_SHARD_BYTES: Final = 1 << 20
"""Smaller ones are not made: then there are fewer."""

_EVEN: Final = 0.01
"""How much more than its share the largest part of a dataset may hold where parts are to be even."""

_READ_BYTES = 8 << 20


@contextmanager
def data_root(chosen: Path | None) -> Generator[Path, None, None]:
    """The folder datasets lie in: the one chosen, which keeps them, or a temporary one."""
    if chosen is not None:
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="emlio-bench-data-") as folder:
        yield Path(folder)


def make_data(spec: DataSpec, root: Path, *, progress: bool) -> Path:
    """Make the dataset below `root`, or find it there from an earlier run; index it; return its directory."""
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
    """The shards' files, in the dataset's order; indexes them where they are not."""
    with open_dataset(directory.name, directory) as dataset:
        return tuple(shard.path for shard in dataset.shards)


def warm_cache(directory: Path) -> int:
    """Read all shards once, so that they lie in the page cache as far as it has room; returns their size."""
    buffer = bytearray(_READ_BYTES)
    size_bytes = 0
    for path in shard_paths(directory):
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                size_bytes += got
    return size_bytes


def link_copies(directory: Path, copies: int) -> Path:
    """A dataset that names each of the shards `copies` times, by hard links: large, and yet no larger in memory."""
    shards = shard_paths(directory)
    linked = directory.with_name(f"{directory.name}-times{copies}")
    linked.mkdir(exist_ok=True)
    count = copies * len(shards)
    for number in range(count):
        link = linked / f"linked-{number:05d}-of-{count:05d}.tfrecord"
        if link.is_symlink() or not link.exists():
            link.unlink(missing_ok=True)
            link.hardlink_to(shards[number % len(shards)].resolve())  # links to files elsewhere are not served
    shard_paths(linked)
    return linked


def split_shards(directory: Path, parts: int) -> tuple[Path, ...]:
    """Directories that each hold a part of the dataset's shards, by hard links: as daemons without copies would.

    Args:
        directory: the dataset's.
        parts: how many; neighbours go to different ones.
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
                link.hardlink_to(shard.resolve())  # links to files elsewhere are not served
        shard_paths(folder)
        found.append(folder)
    return tuple(found)


def split_evenly(directory: Path, parts: int) -> tuple[Path, ...]:
    """The same, of parts that hold as much as each other.

    In a random order each part is asked for in proportion to what it holds: behind equal lines all wait for the largest one.
    """
    found = split_shards(directory, parts)
    sizes = [sum(path.stat().st_size for path in shard_paths(part)) for part in found]
    if max(sizes) * parts > (1 + _EVEN) * sum(sizes):
        raise DatasetError(
            f"{directory}: its {parts} parts must hold as much as each other to {_EVEN:.0%}, they have {min(sizes):,} to "
            f"{max(sizes):,} bytes; choose shards that can be dealt evenly"
        )
    return found
