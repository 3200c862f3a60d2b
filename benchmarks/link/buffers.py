"""How much memory TCP may take for a connection, in one network namespace.

Covers: raising it as people do for long fast networks, reading it. Does not cover: making namespaces
(emlio.benchmarks.link.devices).
"""

from pathlib import Path
from typing import Final

__all__ = ["TUNED_BYTES", "most_to_send", "tune_buffers"]

TUNED_BYTES: Final = 64 << 20
"""The most a connection may take for either direction; what guides for networks of 10 Gbit/s and 50 ms recommend."""

# The thread's own, which is another one in each namespace.
_SYSCTL: Final = Path("/proc/sys/net/ipv4")
_NAMES: Final = ("tcp_wmem", "tcp_rmem")


def tune_buffers() -> None:
    """Raise both limits in the calling thread's namespace. What a connection begins with stays as it is."""
    for name in _NAMES:
        path = _SYSCTL / name
        least, usual, _ = path.read_text(encoding="ascii").split()
        path.write_text(f"{least} {usual} {TUNED_BYTES}", encoding="ascii")


def most_to_send() -> int:
    """The most a connection may take for what it sends, in the calling thread's namespace."""
    return int((_SYSCTL / "tcp_wmem").read_text(encoding="ascii").split()[2])
