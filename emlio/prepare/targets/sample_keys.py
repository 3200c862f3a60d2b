"""The keys of all samples of a dataset of tars, to find those that occur twice.

Within a shard, records tell (emlio.prepare.targets.tar_record). Which items are in one shard follows
from the seed, so without this the same data would be refused with one seed and accepted with another.

Covers: keys of the shards of this run and of those that an earlier run finished. Does not cover: the
shards (emlio.prepare.targets.tar_set).
"""

import hashlib
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.formats.tar import key_and_extension
from emlio.prepare.targets.tar_set import finished_tar
from emlio.prepare.targets.target import TARS

__all__ = ["SampleKeys"]

Hashes = npt.NDArray[np.uint64]


class SampleKeys:
    """The keys of a dataset, 8 bytes for each. Thread-safe."""

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

    def add(self, keys: Iterable[str]) -> None:
        """Add the keys of a shard before it is finished; each is in the shard once.

        Raises:
            ConfigError: one of them is that of a sample in another shard.
            DatasetError: a finished shard cannot be read.
        """
        by_hash = {_hash(key): key for key in keys}
        new = _sorted(by_hash)
        with self._lock:
            if self._runs is None:
                found: list[Hashes] = []
                for shard in range(self._shards):
                    if finished_tar(self._out, shard, self._shards) is not None:
                        _insert(found, _sorted(map(_hash, self._keys_in(shard))))
                self._runs = found
            for run in self._runs:
                places = np.minimum(np.searchsorted(run, new), len(run) - 1)
                twice = new[run[places] == new].tolist()
                if twice:
                    raise self._refusal(by_hash[twice[0]])
            _insert(self._runs, new)

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
