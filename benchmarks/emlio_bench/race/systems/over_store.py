"""Common code of systems that read objects of an S3 server."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.link.contract import Link
from emlio_bench.race.records.consumer import converted
from emlio_bench.race.servers.object_store import BUCKET, STORE, serving_bucket, why_no_store
from emlio_bench.race.systems.system import System

__all__ = ["OverStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverStore(System):
    """A part of a `System`. Its name is also that of its data format."""

    family: Family = "objects"
    programs: tuple[str, ...] = (STORE,)

    def lacks(self) -> str | None:
        """See `System`."""
        return System.lacks(self) or why_no_store(self.cache)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        return converted(self.python, self.reader, corpus, folder, form=self.name, options={"bucket": BUCKET})

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        with serving_bucket(prepared, link, self.cache) as url:
            yield url
