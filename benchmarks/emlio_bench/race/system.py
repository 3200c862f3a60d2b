"""The interface between the race and its systems.

Covers: the description of each system, and how its data are made, served and read. Does not cover:
the systems (emlio_bench.race.subjects), the race.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from emlio.errors import ConfigError
from emlio_bench.link.contract import Link
from emlio_bench.race.corpus import Corpus
from emlio_bench.race.order import RaceOrder

__all__ = ["DEFAULT", "WORKERS", "Claim", "Family", "Setting", "System", "setting", "workers_setting"]

Family = Literal["ours", "files", "objects", "http", "service", "local", "limit", "quoted"]
"""The groups of systems.

Five groups read over the link, each in its own way. The others read on the training host itself,
only send bytes, or are quoted.
"""

DEFAULT: Final = "default"
"""The name of a setting without tuning."""

WORKERS: Final = (2, 4, 8, 16)
"""The numbers of workers that are tried, for systems with workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to run a system.

    Attributes:
        name: short stable name, such as "default", "tuned", "16 workers".
        words: meaning of the setting, for the report.
        options: options of the consumer and the server, by name.
        usual: whether it runs without a request for all settings: true for the defaults, and for
            the setting found to be best.
    """

    name: str
    words: str
    options: tuple[tuple[str, str], ...] = ()
    usual: bool = False

    def __post_init__(self) -> None:
        names = [name for name, _ in self.options]
        if not self.name or len(set(names)) != len(names):
            raise ConfigError(f"a setting must have a name and each option once, got {self.name!r} with {names}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claims of a system about itself, at the settings of the race.

    Attributes:
        shuffles: description of its shuffling.
        exact: whether it delivers each record once in an epoch; None if it makes no claim.
        leaves_on_disk: description of the files that it leaves.
        needs: required software, in words.
        packages: Python packages whose versions are recorded.
        decodes: whether its consumer decodes pictures, so that it can run contests with pictures.
        halves: whether it reads local shards beside those of the storage, so that it can run
            contests with halves.
    """

    shuffles: str
    exact: bool | None
    leaves_on_disk: str
    needs: str
    packages: tuple[str, ...] = ()
    decodes: bool = False
    halves: bool = False


class System(Protocol):
    """One system of the race.

    The object can be kept for a whole race. `prepare`, `serve` and a consumer are used in this
    order, with one consumer at a time.
    """

    @property
    def name(self) -> str:
        """A short stable name for results."""
        ...

    @property
    def family(self) -> Family:
        """The group of systems that it is shown with."""
        ...

    @property
    def claim(self) -> Claim:
        """The claims of the system about itself."""
        ...

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs of `environments.GO_PROGRAMS` that it needs."""
        ...

    @property
    def environment(self) -> str | None:
        """The name of the environment that its programs run in; None for this process's own.

        The environments are in emlio_bench.race.environments.
        """
        ...

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """Return its settings for a link with this round trip; its defaults come first."""
        ...

    def why_not(self) -> str | None:
        """Return what is missing here and how to get it, or None.

        The race itself checks and makes the environment.
        """
        ...

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Convert the records to its own format below `folder`, once.

        Args:
            corpus: the records.
            folder: folder of all formats.
        """
        ...

    def serve(self, prepared: Path, link: Link) -> AbstractContextManager[str]:
        """Start its servers at the storage end of the link.

        Yields the URL or path of the data for the consumer.

        Args:
            prepared: result of `prepare`.
            link: the link. Servers listen at `storage.listen`, are reached at `storage.address`,
                and their ports are offered.
        """
        ...

    def command(self, order: RaceOrder) -> list[str]:
        """Return the consumer's command line.

        It runs at the training end, and reports each Epoch and then Finished.
        """
        ...


def setting(name: str, words: str, *, usual: bool = False, **options: str | int) -> Setting:
    """Return a setting with its options as keywords."""
    values = tuple((key, str(value)) for key, value in options.items())
    return Setting(name=name, words=words, options=values, usual=usual or name == DEFAULT)


def workers_setting(count: int, words: str, *, usual: bool = False, **options: str | int) -> Setting:
    """Return a setting that is named after its number of workers."""
    return setting(f"{count} workers", words, usual=usual, workers=count, **options)
