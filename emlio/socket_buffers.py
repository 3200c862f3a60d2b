"""The size up to which the kernel lets the buffers of a TCP socket grow.

Covers: this host's settings. Does not cover: the number of connections that follows from them
(emlio.receiver.addresses.lane_count).
"""

from functools import cache

from emlio.errors import ConfigError

__all__ = ["receive_buffer_bytes", "send_buffer_bytes"]


def receive_buffer_bytes() -> int:
    """Return the largest receive buffer: the third number of tcp_rmem."""
    return _most_bytes("tcp_rmem")


def send_buffer_bytes() -> int:
    """Return the largest send buffer: the third number of tcp_wmem.

    Ranks send little, but their daemons may have the same settings.
    """
    return _most_bytes("tcp_wmem")


@cache  # a daemon must know the value even when it cannot open a file any more
def _most_bytes(setting: str) -> int:
    try:
        with open(f"/proc/sys/net/ipv4/{setting}", encoding="ascii") as file:
            return int(file.read().split()[2])
    except (OSError, IndexError, ValueError) as error:
        raise ConfigError(f"the size of TCP buffers cannot be read from /proc: {setting}: {error}") from error
