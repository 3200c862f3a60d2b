"""The interface between the race and its systems, and what most of them have in common."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.link.contract import Link
from emlio_bench.race.needs.environments import environment_python, find_program, why_no_environment
from emlio_bench.race.records.corpus import make_records
from emlio_bench.race.records.order import RaceOrder, consumer_command

__all__ = ["DEFAULT", "Claim", "Setting", "System", "setting"]

DEFAULT: Final = "default"
"""The name of a setting without tuning."""


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


def setting(name: str, words: str, **options: str | int) -> Setting:
    """Return a setting with its options as keywords, and `usual` for one that runs without a request."""
    usual = bool(options.pop("usual", False)) or name == DEFAULT
    values = tuple((key, str(value)) for key, value in options.items())
    return Setting(name=name, words=words, options=values, usual=usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claims of a system about itself, at the settings of the race.

    Attributes:
        shuffles: description of its shuffling.
        exact: whether it delivers each record once in an epoch; None if it makes no claim.
        leaves_on_disk: description of the files that it leaves.
        packages: Python packages whose versions are recorded.
        decodes: whether its consumer decodes pictures, so that it can run contests with pictures.
        halves: whether it reads local shards beside those of the storage, so that it can run
            contests with halves.
        trains: whether its consumer hands pictures and labels to a model.
    """

    shuffles: str
    exact: bool | None = None
    leaves_on_disk: str = "nothing"
    packages: tuple[str, ...] = ()
    decodes: bool = False
    halves: bool = False
    trains: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A way to get records from the storage host to the training host.

    Attributes:
        name: short stable name for results.
        family: see `Family`.
        claim: what it says about itself.
        reader: module of its consumer in emlio_bench.race.consumers.
        tried: its settings; its defaults come first.
        form: converts the records to its own format below a folder, once, and returns where they are.
        environment: name of the environment that its programs run in
            (emlio_bench.race.needs.environments); None for this process's own.
        programs: programs of `environments.GO_PROGRAMS` that it needs.
        cache: folder of environments and programs.
        reads_here: whether its data are a folder of the training host: a disk, or a mount that is there.
    """

    name: str
    family: Family
    claim: Claim
    reader: str
    tried: tuple[Setting, ...] = ()
    form: Callable[[Corpus, Path], Path] = make_records
    environment: str | None = None
    programs: tuple[str, ...] = ()
    cache: Path = Path()
    reads_here: bool = False

    @property
    def python(self) -> Path | None:
        """The interpreter of its environment; None for this process's own, or if it is not made."""
        return None if self.environment is None else environment_python(self.environment, self.cache)

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """Return its settings for a link with this round trip; its defaults come first."""
        return self.tried

    def lacks(self) -> str | None:
        """Return what is missing to read it here that a race does not install, and how to get it, or None."""
        return why_no_environment(self.environment) if self.environment is not None else None

    def not_made(self) -> str | None:
        """Return what a race installs for it and what is not there, or None."""
        if self.environment is not None and self.python is None:
            return f"needs its environment, {self.environment}, which is not made"
        missing = [program for program in self.programs if find_program(program, self.cache) is None]
        return f"needs {', '.join(missing)}, which is not made" if missing else None

    def why_no_server(self) -> str | None:
        """Return what is missing to serve it from here, or None."""
        return None

    def on_own_disk(self) -> "System":
        """Return the same system with data on this host's own disk."""
        return self

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Convert the records to its own format below `folder`, once."""
        return self.form(corpus, folder)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Start its servers at the storage end of the link.

        Yields the URL or path of the data for the consumer.

        Args:
            prepared: result of `prepare`.
            link: the link. Servers listen at `storage.listen`, are reached at `storage.address`,
                and their ports are offered.
        """
        yield f"file://{prepared.resolve()}"

    def command(self, order: RaceOrder) -> list[str]:
        """Return the consumer's command line.

        It runs at the training end, and reports each Epoch and then Finished.
        """
        return consumer_command(self.python, self.reader, order)
