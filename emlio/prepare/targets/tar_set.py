"""The shards of a dataset of WebDataset tars that are still to be written."""

import hashlib
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import ConfigError, DatasetError
from emlio.formats.tar import key_and_extension
from emlio.index.parallel import ForEachShard, for_each_shard
from emlio.prepare.disk import disk_error
from emlio.prepare.targets.shard_file import ShardFile
from emlio.prepare.targets.shard_set import Recipe, write_missing
from emlio.prepare.targets.tally import Record, Tally
from emlio.prepare.targets.target import TARS
from emlio.store.atomic_file import write_atomically

__all__ = ["SampleKeys", "TarShard", "TarSummary", "finished_tar", "write_tar", "write_tars"]

Hashes = npt.NDArray[np.uint64]


class SampleKeys:
    """The keys of a dataset, 8 bytes for each, to find those that occur twice. Thread-safe.

    Within a shard, records tell. Which items are in one shard follows from the seed, so without this
    the same data would be refused with one seed and accepted with another.
    """

    def __init__(self, out: Path, shards: int) -> None:
        """Begin without keys.

        Args:
            out: the folder of the dataset.
            shards: how many shards it will have.
        """
        self._out = out
        self._shards = shards
        self._lock = Lock()
        self._runs: list[Hashes] | None = None
        self._added = set[int]()

    def add(self, shard: int, keys: Sequence[str]) -> None:
        """Add the keys of a shard before it is finished; each is in the shard once.

        A shard that is made again, as after the loss of a host, adds nothing.

        Raises:
            ConfigError: one of them is that of a sample in another shard.
            DatasetError: a finished shard cannot be read.
        """
        by_hash = {_hash(key): key for key in keys}
        new = _sorted(by_hash)
        with self._lock:
            if shard in self._added:
                return
            if self._runs is None:
                found: list[Hashes] = []
                for there in range(self._shards):
                    if finished_tar(self._out, there, self._shards) is not None:
                        _insert(found, _sorted(map(_hash, self._keys_in(there))))
                self._runs = found
            for run in self._runs:
                places = np.minimum(np.searchsorted(run, new), len(run) - 1)
                twice = new[run[places] == new].tolist()
                if twice:
                    raise self._refusal(by_hash[twice[0]])
            _insert(self._runs, new)
            self._added.add(shard)

    def _refusal(self, key: str) -> ConfigError:
        """Return the error for a key that another shard has.

        Its hash says so: that two different keys of 10^8 have one is a chance of 1 in 4,000.
        """
        shards = (shard for shard in range(self._shards) if finished_tar(self._out, shard, self._shards) is not None)
        there = next(
            (TARS.shard_name(shard, self._shards) for shard in shards if key in self._keys_in(shard)), "another shard"
        )
        return ConfigError(
            f"each sample must have a key of its own, {key!r} is that of two, one of them in {there}. Number the samples "
            "instead: --keys numbers"
        )

    def _keys_in(self, shard: int) -> Iterator[str]:
        """Yield the keys of a finished shard."""
        path = self._out / TARS.shard_name(shard, self._shards)
        last = None
        try:
            with tarfile.open(path, "r:") as archive:
                while (member := archive.next()) is not None:
                    vars(archive)["members"].clear()  # gigabytes for millions of them
                    key = key_and_extension(member.name)[0]
                    if key != last:
                        last = key
                        yield key
        except (tarfile.TarError, OSError) as error:
            raise DatasetError(f"{path}: cannot be read: {error}. Remove it and run the same command again") from error


def _insert(runs: list[Hashes], new: Hashes) -> None:
    """Add sorted hashes to runs each of which is at least twice as long as the next, so that there are few."""
    if not len(new):
        return
    while runs and len(runs[-1]) < 2 * len(new):
        new = np.sort(np.concatenate((runs.pop(), new)), kind="stable")
    runs.append(new)


def _hash(key: str) -> int:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _sorted(hashes: Iterable[int]) -> Hashes:
    return np.sort(np.fromiter(hashes, np.uint64))


_BLOCK_BYTES: Final = 1 << 20
_END_BYTES: Final = 2 * tarfile.BLOCKSIZE


class TarShard:
    """Appends records to a file, which its owner closes. It belongs to one thread.

    Attributes:
        records: how many it holds.
    """

    def __init__(self, file: ShardFile) -> None:
        self.records = 0
        self._file = file
        self._crc = 0

    def append(self, record: Record) -> int:
        """Add one record and return its size in the file.

        The record's parts must not change until `commit`.

        Raises:
            DatasetError: the disk is full or broken.
        """
        size = 0
        for part in record.parts:
            size += len(memoryview(part))
            self._crc = crc32c(part, self._crc)
        self._file.append(record.parts, size)
        self.records += 1
        return size

    def commit(self, *, verify: bool, advance: Callable[[int], None]) -> None:
        """Write the end mark and finish the file, after it is read back if requested.

        Raises:
            DatasetError: the disk is full or broken, or holds other bytes than were written.
        """
        # As Python's module and GNU tar do it: two empty blocks, and the file ends with a whole record of tapes.
        end = bytes(_END_BYTES + -(self._file.size_bytes + _END_BYTES) % tarfile.RECORDSIZE)
        self._crc = crc32c(end, self._crc)
        self._file.append((end,), len(end))
        self._file.commit((lambda temporary: self._check(temporary, advance)) if verify else None)

    def _check(self, temporary: Path, advance: Callable[[int], None]) -> None:
        found = size = 0
        try:
            with temporary.open("rb", buffering=0) as file:
                while block := file.read(_BLOCK_BYTES):
                    found = crc32c(block, found)
                    size += len(block)
                    advance(len(block))
        except OSError as error:
            raise DatasetError(f"{self._file.path}: cannot be read back: {error.strerror or error}") from error
        if (found, size) != (self._crc, self._file.size_bytes):
            raise DatasetError(
                f"{self._file.path}: must read back with {self._file.size_bytes} bytes and the CRC32C {self._crc:#010x}, "
                f"has {size} and {found:#010x}. The disk or the memory of this machine may be faulty"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TarSummary:
    """The content of one tar.

    Attributes:
        file: its name.
        size_bytes: its size.
        records: how many it holds.
        label_counts: records by label; None if there are no labels.
    """

    file: str
    size_bytes: int
    records: int
    label_counts: dict[str, int] | None


def write_tars(
    out: Path,
    recipe: Recipe,
    each: ForEachShard[int, TarSummary] = for_each_shard,
    *,
    workers: int,
    verify: bool,
    force: bool,
    progress: bool,
) -> tuple[list[TarSummary], int]:
    """Write the tars of a recipe that do not exist yet.

    Args:
        out: the directory, held by `sole_writer`.
        recipe: the shards to write; their records are whole members.
        each: makes the work for each shard be done.
        workers: how many shards are written at once.
        verify: read every shard back from the disk and compare.
        force: replace a dataset that another recipe made, or all shards of this one.
        progress: show a line of progress.

    Returns:
        What describes all shards, and how many shards existed already.

    Raises:
        ConfigError: the directory holds something else.
        DatasetError: a disk is full or broken, or an error of the recipe's records.
    """

    def write_one(shard: int, advance: Callable[[int], None]) -> TarSummary:
        return write_tar(out, recipe, shard, verify=verify, advance=advance)

    return write_missing(
        out,
        TARS,
        recipe,
        finished_tar,
        write_one,
        each,
        workers=workers,
        verify=verify,
        force=force,
        progress=progress,
    )


def finished_tar(out: Path, shard: int, shards: int) -> TarSummary | None:
    """Return what describes a complete tar, whose file has the right size."""
    path = out / TARS.shard_name(shard, shards)
    try:
        summary = msgspec.json.decode((out / TARS.summary_name(shard)).read_bytes(), type=TarSummary)
        size = path.stat().st_size
    except (msgspec.MsgspecError, OSError):
        return None
    return summary if (summary.file, summary.size_bytes) == (path.name, size) else None


def write_tar(out: Path, recipe: Recipe, shard: int, *, verify: bool, advance: Callable[[int], None]) -> TarSummary:
    """Write one tar and what describes it; see `write_tars`."""
    path, described = out / TARS.shard_name(shard, recipe.shards), out / TARS.summary_name(shard)
    labels = Tally(features={})
    with ShardFile(path, int(recipe.shard_bytes[shard])) as file:
        tar = TarShard(file)
        for record in recipe.records(shard):
            labels.add(record)
            advance(tar.append(record))
        # Otherwise the old description would be that of the new file until its own is written.
        described.unlink(missing_ok=True)
        tar.commit(verify=verify, advance=advance)
    summary = TarSummary(
        file=path.name, size_bytes=file.size_bytes, records=tar.records, label_counts=labels.label_counts
    )
    try:
        write_atomically(described, (msgspec.json.encode(summary), b"\n"))
    except OSError as error:
        raise disk_error(described, 0, error) from error
    return summary
