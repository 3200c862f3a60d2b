"""The data of a benchmark: made once, then kept in the page cache."""

import ctypes
import mmap
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from emlio.errors import ConfigError, DatasetError
from emlio.index.opening import open_dataset
from emlio.prepare.synth import SynthOptions, synthesise
from emlio.tfrecord import FRAME_BYTES
from emlio.units import format_size
from emlio_bench.harness.scenario import DataSpec

__all__ = [
    "Locked",
    "data_root",
    "link_copies",
    "locked",
    "make_data",
    "make_folder",
    "memory_root",
    "read_through",
    "shard_paths",
    "split_evenly",
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


def make_folder(root: Path) -> None:
    """Make a folder for datasets, or find it.

    Raises:
        DatasetError: it cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(f"the benchmark's data must have a folder: {root}: {error.strerror or error}") from error


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


@contextmanager
def prepared(spec: DataSpec, chosen: Path | None) -> Generator[Path, None, None]:
    """Provide the dataset's directory, in the page cache, while the block lasts.

    Args:
        spec: the dataset.
        chosen: folder for datasets, which keeps them; None for a temporary folder.
    """
    with locked_data(spec, chosen) as (directory, _):
        yield directory


@contextmanager
def locked_data(spec: DataSpec, chosen: Path | None) -> "Generator[tuple[Path, Locked], None, None]":
    """Provide the directory as `prepared` does, and what the system allowed to lock."""
    with data_root(chosen) as root:
        directory = make_data(spec, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        with locked(shard_paths(directory)) as held:
            yield directory, held


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
    make_folder(root)
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
    count = copies * len(shards)
    for number in range(count):
        _link(linked / f"linked-{number:05d}-of-{count:05d}.tfrecord", shards[number % len(shards)])
    shard_paths(linked)
    return linked


def split_evenly(directory: Path, parts: int) -> tuple[Path, ...]:
    """Deal the shards to folders beside the dataset, as hard links; return the folders.

    Raises:
        DatasetError: the folders would not hold as much as each other.
    """
    shards = shard_paths(directory)
    sizes = [sum(shard.stat().st_size for shard in shards[part::parts]) for part in range(parts)]
    if not min(sizes) or max(sizes) * parts > (1 + _EVEN) * sum(sizes):
        raise DatasetError(
            f"{directory}: its {parts} parts must hold as much as each other to {_EVEN:.0%}, they have {min(sizes):,} to "
            f"{max(sizes):,} bytes; choose shards that can be dealt evenly"
        )
    found = tuple(directory.with_name(f"{directory.name}-part{part}of{parts}") for part in range(parts))
    for part, folder in enumerate(found):
        for shard in shards[part::parts]:
            _link(folder / shard.name, shard)
        shard_paths(folder)
    return found


def _link(link: Path, shard: Path) -> None:
    link.parent.mkdir(exist_ok=True)
    if link.is_symlink() or not link.exists():
        link.unlink(missing_ok=True)
        link.hardlink_to(shard.resolve())  # symbolic links to other folders are not served


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.munlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Locked:
    """Files whose pages this process holds in memory.

    Attributes:
        size_bytes: their size.
        refused: the error of the system if it did not allow it; empty if all pages are locked.
    """

    size_bytes: int
    refused: str
    _maps: Sequence[tuple[int, int]] = field(default=(), repr=False)

    def resident(self) -> float:
        """Return the share of their pages that are in memory now."""
        pages, there = 0, 0
        for address, length in self._maps:
            states = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
            if _libc.mincore(address, length, states.ctypes.data):
                raise OSError(ctypes.get_errno(), "mincore must tell which pages are in memory")
            pages += len(states)
            there += int((states & 1).sum())
        return there / pages if pages else 1.0


@contextmanager
def locked(files: Iterable[Path], *, lock: bool = True) -> Generator[Locked, None, None]:
    """Hold the pages of these files in memory while the block lasts, as far as the system allows it; or only look at them."""
    with ExitStack() as held:
        maps: list[tuple[int, int]] = []
        refused, size_bytes = "", 0
        for path in files:
            length = path.stat().st_size
            if not length:
                continue
            with path.open("rb") as file:
                view = held.enter_context(mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ))
            array = np.frombuffer(view, np.uint8)
            address = array.ctypes.data
            del array  # it would keep the mapping from being closed
            maps.append((address, length))
            size_bytes += length
            if lock and _libc.mlock(address, length):
                refused = refused or f"{path.name} could not be locked: error {ctypes.get_errno()} of mlock"
        yield Locked(size_bytes=size_bytes, refused=refused, _maps=tuple(maps))
