"""The resident memory of a process."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Resident", "read_resident"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """The memory of a process that is in RAM.

    Attributes:
        own_bytes: memory of the process itself: heap, stacks, shared memory.
        file_bytes: pages of mapped files, which the kernel may reclaim at any time.
    """

    own_bytes: int
    file_bytes: int


def read_resident(pid: int, proc: Path = Path("/proc")) -> Resident:
    """Read the resident memory of a process from /proc."""
    sizes: dict[str, int] = {}
    for line in (proc / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name in ("RssAnon", "RssShmem", "RssFile"):
            sizes[name] = int(rest.split()[0]) * 1024
    return Resident(own_bytes=sizes["RssAnon"] + sizes["RssShmem"], file_bytes=sizes["RssFile"])
