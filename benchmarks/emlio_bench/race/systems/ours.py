"""EMLIO as a user runs it.

Settings: none. The loader chooses everything that could be tuned (streams, their number, windows,
prefetch) from its measurements; only the order of records is requested. The local mode reads the
same directory without a daemon.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from emlio_bench.harness.contest import Family
from emlio_bench.harness.daemon import running_daemon
from emlio_bench.link.contract import Link
from emlio_bench.race.servers.served import until_orphaned
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["Local", "Remote", "serving_daemon"]

_CLAIM: Final = Claim(
    shuffles="every record anywhere in the epoch",
    exact=True,
    leaves_on_disk="nothing",
    packages=("emlio",),
    decodes=True,
    halves=True,
    trains=True,
)
_LOCAL_CLAIM: Final = replace(_CLAIM, halves=False)
_READER: Final = "read_emlio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote(System):
    """See `System`. A daemon runs at the storage end, and a rank at the training end.

    Attributes:
        lanes: most data connections, the concurrency of a daemon in the paper; 0 to let the loader
            choose.
    """

    name: str = "emlio"
    lanes: int = 0
    family: Family = "ours"
    claim: Claim = _CLAIM
    reader: str = _READER

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        if self.lanes:
            return (setting("default", f"{self.lanes} stream(s) for data, all else automatic, global shuffle"),)
        return (
            setting("default", "everything automatic, global shuffle"),
            setting("shards", "everything automatic, whole shards shuffled", shuffle="shard"),
        )

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        flags = ["--lanes", str(self.lanes)] if self.lanes else []
        with serving_daemon(prepared, link, flags) as url:
            yield url


@contextmanager
def serving_daemon(prepared: Path, link: Link, flags: Sequence[str] = ()) -> Generator[str, None, None]:
    """Run a daemon at the storage end while the block lasts; yield the address for a loader.

    Args:
        prepared: the dataset's folder, with options if it has any.
        link: link at whose storage end the daemon runs.
        flags: more flags for `emlio-daemon`.
    """
    # The data port is the next one, as it is for users: a rank that knows nothing of the daemon tries that one.
    flags = ["--insecure", "--bind", f"tcp://{link.storage.listen}:0", *flags]
    with running_daemon(
        prepared, flags, within=lambda command: link.storage.command(until_orphaned(command))
    ) as daemon:
        port, _, dataset = daemon.address.rpartition(":")[2].partition("/")
        yield f"emlio://{link.storage.address}:{port}/{dataset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Local(System):
    """See `System`. The same loader reads a local directory, without daemon and link."""

    name: str = "emlio-local"
    family: Family = "ours"
    claim: Claim = _LOCAL_CLAIM
    reader: str = _READER

    @property
    def reads_here(self) -> bool:
        """See `System`."""
        return True

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        return (setting("default", "everything automatic, global shuffle, data on this host"),)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`. Nothing is served."""
        yield str(prepared)
