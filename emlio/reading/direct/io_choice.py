"""The choice between reading a dataset through the page cache and past it.

Reading past it pays for data that do not fit into memory: there the cache keeps little that is used
again, and costs a copy and the pages of other processes. Data that fit are read from the disk once.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import msgspec

from emlio.errors import ConfigError
from emlio.index.dataset import Dataset
from emlio.native.disk import DiskQueue, direct_alignment
from emlio.store.folder_store import FolderStore
from emlio.units import format_size

__all__ = ["IoChoice", "IoMode", "IoModes", "available_memory", "choose_io"]

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


class IoMode(Enum):
    """A wish of the operator for how files are read."""

    AUTO = "auto"
    CACHE = "cache"
    DIRECT = "direct"

    @staticmethod
    def parse(text: str) -> "IoMode":
        """Return the mode of this name.

        Raises:
            ConfigError: there is none.
        """
        try:
            return IoMode(text)
        except ValueError:
            raise ConfigError(f"must be auto, cache or direct, got {text!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class IoModes:
    """The operator's wish for each dataset.

    Attributes:
        otherwise: for those without one of their own.
        by_name: for the others.
    """

    otherwise: IoMode = IoMode.AUTO
    by_name: Mapping[str, IoMode] = field(default_factory=dict[str, IoMode], hash=False)

    @staticmethod
    def parse(text: object) -> "IoModes":
        """Parse MODE[,NAME=MODE...]; the first MODE may be missing.

        Raises:
            ConfigError: it is not of this form.
        """
        by_name: dict[str, IoMode] = {}
        otherwise: list[IoMode] = []
        if not isinstance(text, str):
            raise ConfigError(f"must be text such as 'auto,images=direct', got {text!r}")
        for part in text.split(","):
            name, equals, mode = (word.strip() for word in part.rpartition("="))
            if "@" in name:
                raise ConfigError(
                    f"must name a dataset without a generation, which all have the same mode, got {part!r}"
                )
            if equals and name and name not in by_name:
                by_name[name] = IoMode.parse(mode)
            elif not equals and not otherwise:
                otherwise.append(IoMode.parse(mode))
            else:
                raise ConfigError(
                    "must be MODE or NAME=MODE, separated by commas, with MODE and each NAME at most once, "
                    f"got {text!r}"
                )
        return IoModes(otherwise=otherwise[0] if otherwise else IoMode.AUTO, by_name=by_name)

    def without_dataset(self, names: Iterable[str]) -> list[str]:
        """Return the names with a wish of their own that no dataset has."""
        return sorted(set(self.by_name).difference(names))

    def of(self, name: str) -> IoMode:
        """Return the wish for a dataset."""
        return self.by_name.get(name, self.otherwise)


class IoChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The way a dataset is read.

    Attributes:
        direct: past the page cache.
        reason: why, for people.
    """

    direct: bool
    reason: str

    def __str__(self) -> str:
        return f"{'direct' if self.direct else 'cache'} ({self.reason})"


def choose_io(mode: IoMode, dataset: Dataset, *, available_bytes: int | None = None) -> IoChoice:
    """Return how to read a dataset.

    Args:
        mode: the operator's wish.
        dataset: the dataset.
        available_bytes: of memory; by default what this process could still get.
    """
    if mode is IoMode.CACHE:
        return IoChoice(direct=False, reason="--io cache")
    if not isinstance(dataset.files, FolderStore):
        return IoChoice(direct=False, reason="a bucket is read by requests")
    reason = "--io direct"
    if mode is IoMode.AUTO:
        size_bytes = int(dataset.files.sizes.sum())
        free_bytes = available_memory() if available_bytes is None else available_bytes
        sizes = f"{format_size(size_bytes)}, and {format_size(free_bytes)} of memory are free"
        if size_bytes <= free_bytes // 2:
            return IoChoice(direct=False, reason=f"its files fit into memory: {sizes}")
        reason = f"its files have {sizes}"
    refusal = _refusal(dataset.files)
    return IoChoice(direct=not refusal, reason=refusal or reason)


def _refusal(files: FolderStore) -> str:
    """Return why the largest file cannot be read directly; "" if it can."""
    if not len(files):
        return "it has no files"
    largest = int(files.sizes.argmax())
    try:
        with files.open(largest) as file:
            found = direct_alignment(file.fileno())
        DiskQueue(1).close()
    except OSError as error:
        return f"direct reading is not possible here: {error.strerror}"
    return "" if found else "its file system does not offer direct reading"


def available_memory(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Return the bytes of memory that this process can still get: the system's, or its cgroup's if that is less."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", (proc / "meminfo").read_text(), re.MULTILINE)
    free_bytes = int(found[1]) << 10 if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        groups = (proc / "self" / "cgroup").read_text()
    except OSError:
        return free_bytes
    for version in _VERSIONS:
        if group := re.search(version.line, groups, re.MULTILINE):
            free_bytes = min([free_bytes, *version.free_bytes(cgroups / version.folder, group[1])])
    return free_bytes


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of cgroups: the line that names the process's group, its folder, and its files."""

    line: str
    folder: str
    limit: str
    used: str
    idle: str

    def free_bytes(self, root: Path, group: str) -> Iterable[int]:
        """Yield what is left in a group, and in each that it lies in."""
        at = root / group
        for folder in (at, *at.parents):
            if folder == root.parent:
                break
            try:
                limit = (folder / self.limit).read_text().strip()
                used = int((folder / self.used).read_text())
                idle = re.search(rf"^{self.idle} (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
            except OSError:
                continue
            if limit != "max":
                yield max(int(limit) - used + (int(idle[1]) if idle else 0), 0)


_VERSIONS = (
    _Version(line=r"^0::/(.*)$", folder=".", limit="memory.max", used="memory.current", idle="inactive_file"),
    _Version(
        line=r"^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:/(.*)$",
        folder="memory",
        limit="memory.limit_in_bytes",
        used="memory.usage_in_bytes",
        idle="total_inactive_file",
    ),
)
