"""Bare ZeroMQ sockets: the throughput of PUSH/PULL pairs that do nothing else.

Settings: as many pairs as EMLIO's loader uses over this link, and messages of its size, out of
mapped files whose pages are in memory. The data are not assembled, checked or delivered, so this is
a limit of systems built on such sockets, and not a system itself.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.receiver.addresses.lane_count import lanes_for
from emlio.socket_buffers import receive_buffer_bytes, send_buffer_bytes
from emlio.units import format_size
from emlio_bench.harness.contest import Family
from emlio_bench.link.contract import Link
from emlio_bench.race.servers.served import free_port, served
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["BareSockets"]

_SECONDS: Final = 3
_LEFT_OUT_S: Final = 1
_MESSAGE_BYTES: Final = 2 << 20
_AS_MANY: Final = "as many streams as ours"
_CLAIM: Final = Claim(shuffles="nothing", exact=None, leaves_on_disk="nothing", packages=("pyzmq",))


@dataclass(frozen=True, slots=True, kw_only=True)
class BareSockets(System):
    """See `System`."""

    name: str = "zeromq"
    family: Family = "limit"
    claim: Claim = _CLAIM
    reader: str = "read_push"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        return (
            setting(
                _AS_MANY,
                f"as many PUSH/PULL pairs as our loader takes, messages of {format_size(_MESSAGE_BYTES)} out of mapped files, "
                f"for {_SECONDS} s after {_LEFT_OUT_S} s left out",
                usual=True,
                seconds=_SECONDS,
                left_out=_LEFT_OUT_S,
            ),
        )

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        port = free_port(link.storage)
        count = lanes_for(link.spec.rtt_ns, send_buffer_bytes(), receive_buffer_bytes())
        sender = [sys.executable, "-m", "emlio_bench.race.servers.push_sender", str(prepared)]
        sender += [link.storage.listen, link.storage.address, str(port), str(count), str(_MESSAGE_BYTES)]
        with served("the sender of bare sockets", sender, link, port):
            yield f"tcp://{link.storage.address}:{port}"
