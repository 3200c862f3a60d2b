"""The paper's method over the link: PUSH sockets, and batches packed by msgpack.

Settings: those of the paper: whole shards are shuffled, the high-water mark is 16, and T threads
send, each over a socket of its own. The sender is told of each reader and its epochs, then sends
without acknowledgement; nothing is checked.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio_bench.harness.contest import Family
from emlio_bench.link.contract import Link
from emlio_bench.race.servers.served import free_port, served
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["PaperWay"]

_CLAIM: Final = Claim(
    shuffles="whole shards; records stay in their order",
    exact=None,
    leaves_on_disk="nothing",
    packages=("pyzmq", "msgpack"),
    decodes=True,
)
_WORKERS: Final = (2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperWay(System):
    """See `System`."""

    name: str = "paper"
    family: Family = "ours"
    claim: Claim = _CLAIM
    reader: str = "read_paper"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        words = "msgpack, shards shuffled, high-water mark 16"
        return (
            setting("default", f"one sending thread, {words}", workers=1),
            *(
                setting(f"{count} workers", f"{count} sending threads, each with a stream, {words}", workers=count)
                for count in _WORKERS
            ),
        )

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        port = free_port(link.storage)
        sender = [sys.executable, "-m", "emlio_bench.race.servers.paper_sender", str(prepared)]
        sender += [link.storage.listen, link.storage.address, str(port)]
        with served("the paper's sender", sender, link, port):
            yield f"tcp://{link.storage.address}:{port}"
