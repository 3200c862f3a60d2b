"""The common parts of systems.

Covers: a consumer in an environment, data in EMLIO's own format, a folder served as it is. Does not
cover: what differs between systems.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emlio_bench.link.contract import Link
from emlio_bench.race.needs.environments import environment_python
from emlio_bench.race.outcome import Family
from emlio_bench.race.records.consumer import consumer_command
from emlio_bench.race.records.corpus import Corpus, make_records
from emlio_bench.race.records.order import RaceOrder
from emlio_bench.race.systems.system import Claim

__all__ = ["Peer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A `System` without settings. Its subclasses give values to these attributes.

    Attributes:
        name: see `System`.
        family: see `System`.
        claim: see `System`.
        reader: module of its consumer in emlio_bench.race.consumers.
        environment: see `System`.
        programs: see `System`.
        cache: folder of environments and programs.
    """

    name: str
    family: Family
    claim: Claim
    reader: str
    environment: str | None = None
    programs: tuple[str, ...] = ()
    cache: Path = Path()

    @property
    def python(self) -> Path | None:
        """The interpreter of its environment; None for this process's own, or if it is not made."""
        return None if self.environment is None else environment_python(self.environment, self.cache)

    def why_not(self) -> str | None:
        """See `System`."""
        if self.environment is not None and self.python is None:
            return f"needs its environment, {self.environment}, which is not made"
        return None

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        return make_records(corpus, folder)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`. Nothing is served: the data are read where they lie."""
        yield f"file://{prepared.resolve()}"

    def command(self, order: RaceOrder) -> list[str]:
        """See `System`."""
        return consumer_command(self.python, self.reader, order)
