"""EMLIO as a user runs it, and the paper's method.

Settings of EMLIO: none. The loader chooses everything that could be tuned (streams, their number, windows,
prefetch) from its measurements; only the order of records is requested. The local mode reads the
same directory without a daemon.

Settings of the paper's method: those of the paper: whole shards are shuffled, the high-water mark is 16,
and T threads send, each over a socket of its own. The sender is told of each reader and its epochs, then
sends without acknowledgement; nothing is checked.
"""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from emlio_bench.harness.contest import Family
from emlio_bench.harness.sides import running_daemon
from emlio_bench.link.contract import Link
from emlio_bench.race.servers.served import free_port, served, until_orphaned
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["CLAIM", "Local", "PaperWay", "Remote", "serving_daemon"]

CLAIM: Final = Claim(
    shuffles="every record anywhere in the epoch",
    exact=True,
    packages=("emlio",),
    decodes=True,
    halves=True,
    trains=True,
)
_HERE: Final = replace(CLAIM, halves=False)
_PAPERS_CLAIM: Final = Claim(
    shuffles="whole shards; records stay in their order", packages=("pyzmq", "msgpack"), decodes=True
)
_PAPERS: Final = "msgpack, shards shuffled, high-water mark 16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote(System):
    """A daemon at the storage end, and a rank at the training end.

    Attributes:
        lanes: most data connections, the concurrency of a daemon in the paper; 0 to let the loader
            choose.
    """

    name: str = "emlio"
    lanes: int = 0
    family: Family = "ours"
    claim: Claim = CLAIM
    reader: str = "read_emlio"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """Return its orders, or its number of streams."""
        if self.lanes:
            return (setting("default", f"{self.lanes} stream(s) for data, all else automatic, global shuffle"),)
        return (
            setting("default", "everything automatic, global shuffle"),
            setting("shards", "everything automatic, whole shards shuffled", shuffle="shard"),
        )

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Run a daemon."""
        with serving_daemon(prepared, link, ["--lanes", str(self.lanes)] if self.lanes else []) as url:
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
    """The same loader on a local directory, without daemon and link."""

    name: str = "emlio-local"
    family: Family = "ours"
    claim: Claim = _HERE
    reader: str = "read_emlio"
    tried: tuple[Setting, ...] = (setting("default", "everything automatic, global shuffle, data on this host"),)
    reads_here: bool = True

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Serve nothing."""
        yield str(prepared)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperWay(System):
    """PUSH sockets, and batches packed by msgpack."""

    name: str = "paper"
    family: Family = "ours"
    claim: Claim = _PAPERS_CLAIM
    reader: str = "read_paper"
    tried: tuple[Setting, ...] = (
        setting("default", f"one sending thread, {_PAPERS}", workers=1),
        setting("2 workers", f"2 sending threads, each with a stream, {_PAPERS}", workers=2),
        setting("4 workers", f"4 sending threads, each with a stream, {_PAPERS}", workers=4),
    )

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Run the paper's sender."""
        port = free_port(link.storage)
        sender = [sys.executable, "-m", "emlio_bench.race.servers.paper_sender", str(prepared)]
        sender += [link.storage.listen, link.storage.address, str(port)]
        with served("the paper's sender", sender, link, port):
            yield f"tcp://{link.storage.address}:{port}"
