"""Reading over a link with one version of this package at both ends.

Covers: a daemon at the storage end, a rank at the training end, the rank's configuration and its
report. Does not cover: reading (emlio.benchmarks.versions.reader), rounds and figures.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from emlio.benchmarks.harness.pair import ANSWER_S
from emlio.benchmarks.harness.protected import KeyedSides, RankTrust
from emlio.benchmarks.link.contract import Link
from emlio.benchmarks.processes.child import Child
from emlio.benchmarks.processes.daemon import running_daemon
from emlio.benchmarks.versions.checkout import Checkout
from emlio.errors import TransportError

__all__ = ["Read", "ReadOrder", "Served", "serve"]

_READER: Final = Path(__file__).with_name("reader.py")
_WITHIN_S: Final = 120.0


class ReadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a rank.

    Attributes:
        url: address of the daemon.
        arguments: arguments of the loader.
        batches: number of batches to read.
        bytes_per_s: payload per second that the rank's user takes; 0 for no limit.
    """

    url: str
    arguments: dict[str, Any]
    batches: int
    bytes_per_s: int = 0


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a rank.

    Attributes:
        package: file of the package that it ran.
        constructed_ns: duration of the loader's constructor.
        first_batch_ns: time from before the constructor to the first batch.
        later_ns: time from the first batch to the last one; 0 if there is only one.
        payload_bytes: payload of all batches but the first.
        lanes: number of lanes.
        protection: protection of the records in transit.
        imported_bytes: resident memory before the constructor.
        peak_bytes: peak resident memory from then until after the loader's end.
    """

    package: str
    constructed_ns: int
    first_batch_ns: int
    later_ns: int
    payload_bytes: int
    lanes: int
    protection: str
    imported_bytes: int
    peak_bytes: int

    @property
    def later_bytes_per_s(self) -> float:
        """Payload per second, from the first batch on."""
        return self.payload_bytes * 1e9 / max(self.later_ns, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A daemon at the storage end of a link, and the data that ranks need to read from it.

    Attributes:
        checkout: copy of the package that both run.
        link: link between them.
        url: address of the daemon.
        trust: keys of ranks; None without keys.
    """

    checkout: Checkout
    link: Link
    url: str
    trust: RankTrust | None

    def read(
        self,
        batches: int,
        batch_records: int,
        cache: Path,
        *,
        bytes_per_s: int = 0,
        prefetch: str = "128MiB",
        within_s: float = _WITHIN_S,
    ) -> Read:
        """Read with a rank in a new process.

        Args:
            batches: number of batches.
            batch_records: records in a batch.
            cache: folder in which it remembers paths.
            bytes_per_s: see `ReadOrder`.
            prefetch: prefetch of the loader.
            within_s: time limit.
        """
        arguments: dict[str, Any] = {
            "batch_size": batch_records,
            "shuffle": "global",
            "raw": True,
            "to": "numpy",
            "rank": 0,
            "world_size": 1,
            "recovery": {"timeout": f"{ANSWER_S:g}s"},
            "prefetch": prefetch,
        }
        if self.trust is not None:
            arguments["security"] = msgspec.structs.asdict(self.trust)
        order = ReadOrder(url=self.url, arguments=arguments, batches=batches, bytes_per_s=bytes_per_s)
        argv = [sys.executable, str(_READER), msgspec.json.encode(order).decode()]
        command = self.link.training.command(self.checkout.command(argv, {"EMLIO_CACHE": str(cache)}))
        with Child(f"a rank of {self.checkout.name}", command) as child:
            said = child.hear(Read, within_s)
            child.rest(ANSWER_S)
        if Path(said.package).resolve().parents[1] != self.checkout.root:
            raise TransportError(f"the rank must run the package in {self.checkout.root}, it ran {said.package}")
        if (said.protection == "clear") is not (self.trust is None):
            raise TransportError(f"payloads must be sealed just where there are keys, got {said.protection}")
        return said


@contextmanager
def serve(
    directory: Path, checkout: Checkout, link: Link, keys: KeyedSides | None = None, *, lanes: int | None = None
) -> Generator[Served, None, None]:
    """Run a daemon while the block lasts.

    Args:
        directory: directory of the dataset.
        checkout: copy of the package that the daemon and its ranks run.
        link: link between them.
        keys: keys of both sides; None for no protection.
        lanes: the daemon's --lanes; None for its default.
    """
    flags = ["--bind", f"tcp://{link.storage.address}:0", *(keys.daemon_flags if keys else ("--insecure",))]
    flags += ["--lanes", str(lanes)] if lanes is not None else []
    with running_daemon(directory, flags, within=lambda argv: link.storage.command(checkout.command(argv))) as daemon:
        yield Served(checkout=checkout, link=link, url=daemon.address, trust=keys.rank if keys else None)
