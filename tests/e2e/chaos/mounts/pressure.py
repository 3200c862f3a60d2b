"""Memory pressure on the processes of a run alone: a control group, whose pages and entries the kernel is told to free."""

from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["Group"]

_ROOT: Final = Path("/sys/fs/cgroup/memory")


class Group:
    """A control group for memory, if this process may make one; else there is no pressure."""

    def __init__(self, name: str) -> None:
        """See the class."""
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
        own = next((line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] == "memory"), None)
        self._folder: Path | None = None
        if own is not None:
            with suppress(OSError):
                made = _ROOT / own.strip("/") / name
                made.mkdir()
                self._folder = made

    def add(self, pid: int) -> None:
        """Take a process in."""
        if self._folder is not None:
            with suppress(ProcessLookupError):
                (self._folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def press(self) -> None:
        """Free all that can be freed now."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / "memory.force_empty").write_text("1", encoding="ascii")

    def close(self) -> None:
        """Remove the group, whose processes have ended."""
        if self._folder is not None:
            with suppress(OSError):
                self._folder.rmdir()
