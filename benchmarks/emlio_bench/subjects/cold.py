"""EMLIO's subject on data that are not in the page cache: read through it, or past it."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from emlio.errors import DatasetError
from emlio_bench.harness.data import locked, shard_paths
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.scenario import Scenario, Window
from emlio_bench.subjects.loader import Loader

__all__ = ["Cold", "evict"]

_MOST_RESIDENT: Final = 0.02
"""The share of the data that may be in memory before a sample; indexes of containers lie there, too."""


def evict(directory: Path) -> float:
    """Drop a dataset from the page cache; return the share of its pages that are still there."""
    files = shard_paths(directory)
    for path in files:
        with path.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with locked(files, lock=False) as held:
        return held.resident()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    """See `Subject`. A new daemon takes each sample, since pages that a daemon has mapped stay in memory.

    Attributes:
        order: shuffle mode of the loader.
        io: "cache" or "direct".
        resident: the share of the data in memory before each sample.
        disk_reads: the bytes that each daemon read from the disk, as a part of those delivered.
    """

    order: str
    io: str
    resident: list[float] = field(default_factory=list[float], compare=False)
    disk_reads: list[float] = field(default_factory=list[float], compare=False)

    @property
    def name(self) -> str:
        """See `Subject`."""
        return f"emlio-{self.order}-cold-{self.io}"

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """See `Subject`.

        Raises:
            DatasetError: the data cannot be dropped from the page cache.
        """
        there = evict(directory)
        if there > _MOST_RESIDENT:
            raise DatasetError(
                f"{directory}: {there:.0%} of the data stay in the page cache, so a cold sample is not possible; "
                "another process has mapped or locked them, or the file system lies in memory"
            )
        self.resident.append(there)
        found: list[int] = []
        loader = Loader(
            order=self.order, daemon_flags=("--io", self.io), when_done=lambda pid: found.append(_read_bytes(pid))
        )
        measured = loader.measure(scenario, directory, window)
        self.disk_reads.append(found[0] / (window.warm_up_bytes + measured.payload_bytes))
        return measured


def _read_bytes(pid: int) -> int:
    """Return the bytes that a process has read from disks."""
    told = re.search(r"^read_bytes: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    return int(told[1]) if told else 0
