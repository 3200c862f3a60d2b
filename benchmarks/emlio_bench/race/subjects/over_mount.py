"""Common code of systems that read a remote file system.

Covers: the mount that is served, its requirements. Does not cover: the files on it, reading them.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emlio_bench.link.contract import Link
from emlio_bench.race.environments import environment_python
from emlio_bench.race.remote_folder import serving_files, why_no_mount
from emlio_bench.race.system import Family

__all__ = ["OverMount"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverMount:
    """A part of a `System`.

    Attributes:
        cache: folder of environments and programs.
        mount: folder of the storage that the user mounted here; None to use sshfs.
        environment: environment of the consumer; None for this process's own.
    """

    cache: Path
    mount: Path | None = None
    family: Family = "files"
    environment: str | None = None
    programs: tuple[str, ...] = ()

    def why_not(self) -> str | None:
        """See `System`."""
        if self.environment is not None and environment_python(self.environment, self.cache) is None:
            return f"needs its environment, {self.environment}, which is not made"
        return None if self.mount is not None else why_no_mount(self.cache)

    def place(self, folder: Path) -> Path:
        """Return the folder for the system's data: the user's mount, or else `folder`."""
        return self.mount if self.mount is not None else folder

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        with serving_files(prepared, link, self.cache, self.mount) as url:
            yield url
