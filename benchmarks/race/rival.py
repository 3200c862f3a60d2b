"""The seam between the race and the systems that take part in it.

Covers: what every system says about itself, and how its data are made, served and read. Does not cover: the systems
(emlio.benchmarks.race.subjects), the race.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from emlio.benchmarks.link.contract import Link
from emlio.benchmarks.race.corpus import Corpus
from emlio.benchmarks.race.order import RaceOrder
from emlio.errors import ConfigError

__all__ = ["DEFAULT", "WORKERS", "Claim", "Family", "Rival", "Setting", "setting", "workers_setting"]

Family = Literal["ours", "files", "objects", "http", "service", "local", "limit", "quoted"]
"""Those who read over the link in one of five ways, others who read on the training's own host, and what only sends bytes."""

DEFAULT: Final = "default"
"""The name of a setting that nobody has tuned."""

WORKERS: Final = (2, 4, 8, 16)
"""What is tried for systems that take workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to run a system.

    Attributes:
        name: short and stable: "default", "tuned", "16 workers".
        words: what it means, for the report.
        options: for the consumer and the server, by name.
        usual: whether it is run where not all settings are asked for: the defaults, and what was found to be best.
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
    """What a system says of itself at the settings that race.

    Attributes:
        shuffles: in words.
        exact: whether each record comes once in an epoch; None where it does not say.
        leaves_on_disk: in words.
        needs: what must be installed, in words.
        packages: of Python, whose versions belong to the results.
        decodes: whether its consumer decodes pictures; it takes part in contests of pictures then.
        halves: whether it reads shards of this host beside those of the storage's; likewise.
    """

    shuffles: str
    exact: bool | None
    leaves_on_disk: str
    needs: str
    packages: tuple[str, ...] = ()
    decodes: bool = False
    halves: bool = False


class Rival(Protocol):
    """One system. Safe to keep for a whole race; `prepare`, `serve` and a consumer come in this order, one consumer at a time."""

    @property
    def name(self) -> str:
        """A short stable word for results."""
        ...

    @property
    def family(self) -> Family:
        """How its data come: beside which others it is shown."""
        ...

    @property
    def claim(self) -> Claim:
        """What it says of itself."""
        ...

    @property
    def programs(self) -> tuple[str, ...]:
        """Those of emlio.benchmarks.race.environments.GO_PROGRAMS that it needs besides."""
        ...

    @property
    def environment(self) -> str | None:
        """The environment of emlio.benchmarks.race.environments that its programs run in; None for this process's own."""
        ...

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """The ways it is run over a link with this round trip; its defaults come first."""
        ...

    def why_not(self) -> str | None:
        """What is missing here and how to get it, or None. What `environment` names is asked for and made by the race itself."""
        ...

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Its own form of the records, below `folder`; made once.

        Args:
            corpus: which records.
            folder: where all forms lie.
        """
        ...

    def serve(self, prepared: Path, link: Link) -> AbstractContextManager[str]:
        """Start at the storage's end of the link what it needs there; gives what a consumer calls its data: a URL or a path.

        Args:
            prepared: what `prepare` gave.
            link: its servers listen at `storage.listen`, are reached at `storage.address` and their ports offered.
        """
        ...

    def command(self, order: RaceOrder) -> list[str]:
        """The consumer's program and arguments. It is run at the training's end and says Epochs, then Finished."""
        ...


def setting(name: str, words: str, *, usual: bool = False, **options: str | int) -> Setting:
    """A setting with its options as keywords."""
    values = tuple((key, str(value)) for key, value in options.items())
    return Setting(name=name, words=words, options=values, usual=usual or name == DEFAULT)


def workers_setting(count: int, words: str, *, usual: bool = False, **options: str | int) -> Setting:
    """A setting that is called by its number of workers."""
    return setting(f"{count} workers", words, usual=usual, workers=count, **options)
