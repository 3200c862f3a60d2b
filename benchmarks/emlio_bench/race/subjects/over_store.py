"""Common code of systems that read objects of an S3 server.

Covers: the store that is served, its requirements, making the objects. Does not cover: reading
them.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emlio_bench.link.contract import Link
from emlio_bench.race.consumer import consumer_command, converted
from emlio_bench.race.corpus import Corpus
from emlio_bench.race.environments import environment_python
from emlio_bench.race.object_store import BUCKET, STORE, serving_bucket, why_no_store
from emlio_bench.race.order import RaceOrder
from emlio_bench.race.system import Family

__all__ = ["OverStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverStore:
    """A part of a `System`.

    Attributes:
        cache: folder of environments and programs.
        name: see `System`; also the name of its data format, and a part of its consumer's name.
        environment: environment of the consumer.
    """

    cache: Path
    name: str
    environment: str
    family: Family = "objects"
    programs: tuple[str, ...] = (STORE,)

    def why_not(self) -> str | None:
        """See `System`."""
        if environment_python(self.environment, self.cache) is None:
            return f"needs its environment, {self.environment}, which is not made"
        return why_no_store(self.cache)

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        python = environment_python(self.environment, self.cache)
        return converted(python, f"read_{self.name}", corpus, folder, form=self.name, options={"bucket": BUCKET})

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        with serving_bucket(prepared, link, self.cache) as url:
            yield url

    def command(self, order: RaceOrder) -> list[str]:
        """See `System`."""
        return consumer_command(environment_python(self.environment, self.cache), f"read_{self.name}", order)
