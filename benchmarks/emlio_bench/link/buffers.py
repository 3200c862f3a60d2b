"""The sizes of TCP's buffers for a connection, in one network namespace.

Covers: raising the limits as is usual for long fast networks, reading them. Does not cover: making
namespaces (emlio_bench.link.devices).
"""

from pathlib import Path
from typing import Final

__all__ = ["TUNED_BYTES", "most_to_send", "tune_buffers"]

TUNED_BYTES: Final = 64 << 20
"""The largest buffer of a connection for either direction.

Tuning guides recommend this size for networks of 10 Gbit/s and 50 ms.
"""

# These files show the settings of the calling thread's network namespace.
_SYSCTL: Final = Path("/proc/sys/net/ipv4")
_NAMES: Final = ("tcp_wmem", "tcp_rmem")


def tune_buffers() -> None:
    """Raise both limits in the calling thread's namespace, but not the initial buffer sizes."""
    for name in _NAMES:
        path = _SYSCTL / name
        least, usual, _ = path.read_text(encoding="ascii").split()
        path.write_text(f"{least} {usual} {TUNED_BYTES}", encoding="ascii")


def most_to_send() -> int:
    """Return the largest send buffer of a connection, in the calling thread's namespace."""
    return int((_SYSCTL / "tcp_wmem").read_text(encoding="ascii").split()[2])
