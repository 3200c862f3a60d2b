"""iperf3: the throughput of the link, with 1 to 32 streams and the same buffers as all systems.

Settings: the manual of iperf3: with -R the storage end sends, -P sets the streams, -O leaves slow
start out. It sends the same memory again and again and delivers nothing, so it is a limit, and not
a system.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.link.contract import Link
from emlio_bench.link.iperf import find_iperf
from emlio_bench.race.servers.served import free_port, served
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["Iperf3"]

_STREAMS: Final = (1, 8, 16, 32)
_FAR_NS: Final = 50_000_000
"""The round trip above which 16 streams with stock buffers do not fill the link."""

_SECONDS: Final = 3
_LEFT_OUT_S: Final = 1
_CLAIM: Final = Claim(shuffles="nothing", exact=None, leaves_on_disk="nothing")
_MISSING: Final = "needs iperf3: apt-get install iperf3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Iperf3(System):
    """See `System`."""

    name: str = "iperf3"
    family: Family = "limit"
    claim: Claim = _CLAIM
    reader: str = "read_iperf"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        most = 32 if rtt_ns > _FAR_NS else 16
        return tuple(
            setting(
                f"{count} streams" if count > 1 else "1 stream",
                f"{count} TCP streams for {_SECONDS} s after {_LEFT_OUT_S} s left out",
                streams=count,
                seconds=_SECONDS,
                left_out=_LEFT_OUT_S,
                usual=count in (1, most),
            )
            for count in _STREAMS
        )

    def lacks(self) -> str | None:
        """See `System`."""
        return None if find_iperf() is not None else _MISSING

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`. There are no data."""
        return folder

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        program = find_iperf()
        if program is None:
            raise ConfigError(f"iperf3 {_MISSING}")
        port = free_port(link.storage)
        # Without -1: a connection that sends nothing, such as the check whether the server listens,
        # ends a test and not the server.
        command = [program, "-s", "-B", link.storage.listen, "-p", str(port), "--forceflush"]
        with served("iperf3 -s", command, link, port):
            yield f"{link.storage.address}:{port}"
