"""EMLIO as a user runs it.

Settings: none. The loader chooses everything that could be tuned (streams, their number, windows,
prefetch) from its measurements; only the order of records is requested. The local mode reads the
same directory without a daemon.

Covers: over the link, and without it. Does not cover: the paper's method
(emlio_bench.race.subjects.paper).
"""

import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import TransportError
from emlio_bench.link.contract import Link
from emlio_bench.processes.child import Child
from emlio_bench.race.consumer import consumer_command
from emlio_bench.race.corpus import Corpus, make_records
from emlio_bench.race.order import RaceOrder
from emlio_bench.race.served import free_port, until_orphaned
from emlio_bench.race.system import Claim, Family, Setting, setting

__all__ = ["Local", "Remote"]

_CLAIM: Final = Claim(
    shuffles="every record anywhere in the epoch",
    exact=True,
    leaves_on_disk="nothing",
    needs="nothing besides EMLIO",
    packages=("emlio",),
    decodes=True,
    halves=True,
)
_LOCAL_CLAIM: Final = replace(_CLAIM, halves=False)
_READER: Final = "read_emlio"
_DATASET: Final = "race"
_START_S: Final = 60.0
_LOOK_S: Final = 0.02


class _Ready(msgspec.Struct, frozen=True):
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """See `System`. A daemon runs at the storage end, and a rank at the training end.

    Attributes:
        lanes: most data connections, the concurrency of a daemon in the paper; 0 to let the loader
            choose.
    """

    name: str = "emlio"
    lanes: int = 0
    family: Family = "ours"
    claim: Claim = _CLAIM
    environment: str | None = None
    programs: tuple[str, ...] = ()

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        if self.lanes:
            return (setting("default", f"{self.lanes} stream(s) for data, all else automatic, global shuffle"),)
        return (
            setting("default", "everything automatic, global shuffle"),
            setting("shards", "everything automatic, whole shards shuffled", shuffle="shard"),
        )

    def why_not(self) -> str | None:
        """See `System`."""
        return None

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        return make_records(corpus, folder)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        with tempfile.TemporaryDirectory(prefix="emlio-race-") as folder:
            ready = Path(folder) / "ready.json"
            daemon = [sys.executable, "-m", "emlio.daemon.cli", "--data", f"{_DATASET}={prepared}", "--insecure"]
            daemon += ["--bind", f"tcp://{link.storage.listen}:0", "--ready-file", str(ready)]
            data_port = free_port(link.storage)
            daemon += ["--data-port", str(data_port)]
            daemon += ["--lanes", str(self.lanes)] if self.lanes else []
            with Child("emlio-daemon", link.storage.command(until_orphaned(daemon))) as child:
                deadline = time.monotonic() + _START_S
                while not ready.exists():  # it appears by a rename, for which there is no event
                    child.line(_LOOK_S)
                    if time.monotonic() > deadline:
                        raise TransportError(f"emlio-daemon must be ready within {_START_S:g} s, it was not")
                endpoint = msgspec.json.decode(ready.read_bytes(), type=_Ready).endpoint
                port = int(endpoint.rpartition(":")[2])
                link.offer([port, data_port])
                yield f"emlio://{link.storage.address}:{port}/{_DATASET}"

    def command(self, order: RaceOrder) -> list[str]:
        """See `System`."""
        return consumer_command(None, _READER, order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """See `System`. The same loader reads a local directory, without daemon and link."""

    name: str = "emlio-local"
    family: Family = "ours"
    claim: Claim = _LOCAL_CLAIM
    environment: str | None = None
    programs: tuple[str, ...] = ()

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        return (setting("default", "everything automatic, global shuffle, data on this host"),)

    def why_not(self) -> str | None:
        """See `System`."""
        return None

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`."""
        return make_records(corpus, folder)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`. Nothing is served."""
        yield str(prepared)

    def command(self, order: RaceOrder) -> list[str]:
        """See `System`."""
        return consumer_command(None, _READER, order)
