"""The limits of all systems: iperf3, and bare ZeroMQ sockets. They deliver nothing.

Settings of iperf3: its manual: with -R the storage end sends, -P sets the streams, -O leaves slow start
out. Settings of the sockets: as many PUSH/PULL pairs as EMLIO's loader uses over this link, and messages of
its size, out of mapped files whose pages are in memory.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio.receiver.addresses.lane_count import lanes_for
from emlio.socket_buffers import receive_buffer_bytes, send_buffer_bytes
from emlio.units import format_size
from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.link.contract import Link
from emlio_bench.link.iperf import find_iperf
from emlio_bench.race.servers.served import free_port, served
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["BareSockets", "Iperf3"]

_FAR_NS: Final = 50_000_000
"""The round trip above which 16 streams with stock buffers do not fill the link."""
_SPAN: Final[dict[str, str | int]] = {"seconds": 3, "left_out": 1}
_FOR: Final = "for 3 s after 1 s left out"
_MESSAGE_BYTES: Final = 2 << 20
_MISSING: Final = "needs iperf3: apt-get install iperf3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Iperf3(System):
    """iperf3 with 1 to 32 streams and the same buffers as all systems."""

    name: str = "iperf3"
    family: Family = "limit"
    claim: Claim = Claim(shuffles="nothing")
    reader: str = "read_iperf"
    tried: tuple[Setting, ...] = tuple(
        setting(f"{count} stream{'s' * (count > 1)}", f"{count} TCP streams {_FOR}", streams=count, **_SPAN)
        for count in (1, 8, 16, 32)
    )

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """Return its numbers of streams, of which one and as many as fill this link are usual."""
        usual = ("1 stream", "32 streams" if rtt_ns > _FAR_NS else "16 streams")
        return tuple(replace(one, usual=one.name in usual) for one in self.tried)

    def lacks(self) -> str | None:
        """Return how to get iperf3, or None."""
        return None if find_iperf() is not None else _MISSING

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """Make nothing: there are no data."""
        return folder

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Run its server."""
        program = find_iperf()
        if program is None:
            raise ConfigError(f"iperf3 {_MISSING}")
        port = free_port(link.storage)
        # Without -1: a connection that sends nothing, such as the check whether the server listens,
        # ends a test and not the server.
        command = [program, "-s", "-B", link.storage.listen, "-p", str(port), "--forceflush"]
        with served("iperf3 -s", command, link, port):
            yield f"{link.storage.address}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BareSockets(System):
    """PUSH/PULL pairs that do nothing else."""

    name: str = "zeromq"
    family: Family = "limit"
    claim: Claim = Claim(shuffles="nothing", packages=("pyzmq",))
    reader: str = "read_push"
    tried: tuple[Setting, ...] = (
        setting(
            "as many streams as ours",
            f"as many PUSH/PULL pairs as our loader takes, messages of {format_size(_MESSAGE_BYTES)} out of mapped "
            f"files, {_FOR}",
            usual=True,
            **_SPAN,
        ),
    )

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Run their sender."""
        port = free_port(link.storage)
        count = lanes_for(link.spec.rtt_ns, send_buffer_bytes(), receive_buffer_bytes())
        sender = [sys.executable, "-m", "emlio_bench.race.servers.push_sender", str(prepared)]
        sender += [link.storage.listen, link.storage.address, str(port), str(count), str(_MESSAGE_BYTES)]
        with served("the sender of bare sockets", sender, link, port):
            yield f"tcp://{link.storage.address}:{port}"
