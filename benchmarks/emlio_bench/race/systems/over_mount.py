"""Common code of systems that read a remote file system."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from emlio_bench.harness.contest import Family
from emlio_bench.link.contract import Link
from emlio_bench.race.servers.remote_folder import serving_files, why_no_mount, why_no_served_folder
from emlio_bench.race.systems.system import System

__all__ = ["OverMount"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverMount(System):
    """A part of a `System`.

    Attributes:
        mount: folder of the storage that the user mounted here; None to use sshfs.
    """

    family: Family = "files"
    mount: Path | None = None

    @property
    def reads_here(self) -> bool:
        """See `System`."""
        return self.mount is not None

    def lacks(self) -> str | None:
        """See `System`."""
        return System.lacks(self) or (None if self.mount is not None else why_no_mount(self.cache))

    def why_no_server(self) -> str | None:
        """See `System`."""
        return None if self.mount is not None else why_no_served_folder(self.cache)

    def on_own_disk(self) -> System:
        """See `System`."""
        return replace(self, mount=None)

    def place(self, folder: Path) -> Path:
        """Return the folder for the system's data: the user's mount, or else `folder`."""
        return self.mount if self.mount is not None else folder

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        with serving_files(prepared, link, self.cache, self.mount) as url:
            yield url
