"""What systems have in common that read a remote file system.

Covers: the mount that is served, what it needs. Does not cover: what lies on it, who reads it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emlio.benchmarks.link.contract import Link
from emlio.benchmarks.race.environments import environment_python
from emlio.benchmarks.race.remote_folder import serving_files, why_no_mount
from emlio.benchmarks.race.rival import Family

__all__ = ["OverMount"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverMount:
    """A part of a `Rival`.

    Attributes:
        cache: of environments and programs.
        mount: a folder of the storage's that the user mounted here; None for sshfs.
        environment: that the consumer runs in; None for this process's own.
    """

    cache: Path
    mount: Path | None = None
    family: Family = "files"
    environment: str | None = None
    programs: tuple[str, ...] = ()

    def why_not(self) -> str | None:
        """See `Rival`."""
        if self.environment is not None and environment_python(self.environment, self.cache) is None:
            return f"needs its environment, {self.environment}, which is not made"
        return None if self.mount is not None else why_no_mount(self.cache)

    def place(self, folder: Path) -> Path:
        """Where its form of the data is made: on a user's mount through the mount."""
        return self.mount if self.mount is not None else folder

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `Rival`."""
        with serving_files(prepared, link, self.cache, self.mount) as url:
            yield url
