"""The ways in which other systems get their data: a mounted folder, an S3 server, a web server."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.link.contract import Link
from emlio_bench.race.needs.environments import find_program
from emlio_bench.race.records.order import converted
from emlio_bench.race.servers.object_store import BUCKET, STORE, serving_bucket, why_no_store
from emlio_bench.race.servers.remote_folder import serving_files, why_no_mount, why_no_served_folder
from emlio_bench.race.servers.web_server import serving_folder, why_no_web_server
from emlio_bench.race.systems.system import Setting, System

__all__ = ["OverMount", "OverStore", "OverWeb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverMount(System):
    """A system that reads a remote file system.

    Attributes:
        mount: folder of the storage that the user mounted here; None to use sshfs.
    """

    family: Family = "files"
    mount: Path | None = None

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """Return its settings; on the user's mount, those that differ in more than the mount."""
        if self.mount is None:
            return self.tried
        found: dict[tuple[tuple[str, str], ...], Setting] = {}
        for one in self.tried:
            options = tuple((key, "user" if key == "mount" else value) for key, value in one.options)
            words = f"the user's mount,{one.words.partition(',')[2]}"
            found.setdefault(options, replace(one, words=words, options=options))
        return tuple(found.values())

    def lacks(self) -> str | None:
        """Return what is missing to read it here, or None."""
        return System.lacks(self) or (None if self.mount is not None else why_no_mount(self.cache))

    def why_no_server(self) -> str | None:
        """Return what is missing to serve a folder, or None."""
        return None if self.mount is not None else why_no_served_folder(self.cache)

    def on_own_disk(self) -> System:
        """Return the same system without the user's mount."""
        return replace(self, mount=None, reads_here=False)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Convert the records on the user's mount, or else below `folder`."""
        return self.form(corpus, self.mount or folder)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Serve the folder, unless the user has mounted it."""
        with serving_files(prepared, link, self.cache, self.mount) as url:
            yield url


@dataclass(frozen=True, slots=True, kw_only=True)
class OverStore(System):
    """A system that reads objects of an S3 server. Its name is also that of its data format.

    Attributes:
        writer: more options of its writer.
    """

    family: Family = "objects"
    programs: tuple[str, ...] = (STORE,)
    writer: tuple[tuple[str, str | int], ...] = ()

    def lacks(self) -> str | None:
        """Return what is missing to read it here, or None."""
        return System.lacks(self) or why_no_store(self.cache)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Write a bucket with the system's own writer."""
        options = {"bucket": BUCKET, **dict(self.writer)}
        return converted(self.python, self.reader, corpus, folder, form=self.name, options=options)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Serve the bucket."""
        with serving_bucket(prepared, link, self.cache) as url:
            yield url


@dataclass(frozen=True, slots=True, kw_only=True)
class OverWeb(System):
    """A system that reads files over HTTP."""

    family: Family = "http"

    def lacks(self) -> str | None:
        """Return what is missing to read it here, or None."""
        no_curl = find_program("curl", self.cache) is None
        return System.lacks(self) or ("needs curl: apt-get install curl" if no_curl else None)

    def why_no_server(self) -> str | None:
        """Return what is missing to serve files, or None."""
        return why_no_web_server(self.cache)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Serve the folder."""
        with serving_folder(prepared, link, self.cache) as url:
            yield url
