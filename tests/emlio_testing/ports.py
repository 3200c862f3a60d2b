"""TCP ports on which a process listens, and neighbouring ports that are free."""

import os
import random
import socket
from contextlib import ExitStack, suppress

__all__ = ["free_ports", "listening_ports"]

_FIRST_PORT, _LAST_PORT = 20_000, 32_000
"""Below the ports that the system assigns to connections and to listeners on any port."""

_TRIES = 200

_LISTEN = "0A"


def listening_ports(pid: int | None = None) -> set[int]:
    """Return the ports that a process listens on; by default this process."""
    place = "self" if pid is None else str(pid)
    own: set[str] = set()
    for name in os.listdir(f"/proc/{place}/fd"):
        with suppress(OSError):
            own.add(os.readlink(f"/proc/{place}/fd/{name}"))
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError), open(f"/proc/{place}/net/{table}", encoding="ascii") as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and f"socket:[{fields[9]}]" in own:
                    found.add(int(fields[1].rsplit(":", 1)[1], 16))
    return found


def free_ports(count: int, *hosts: str) -> range:
    """Return neighbouring ports that are free now at all of these addresses.

    Raises:
        OSError: none were found; the cause is the error of the last attempt.
    """
    draw = random.Random()
    reason = None
    for _ in range(_TRIES):
        first = draw.randrange(_FIRST_PORT, _LAST_PORT - count)
        ports = range(first, first + count)
        with ExitStack() as stack:
            try:
                for host in hosts:
                    for port in ports:
                        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
                        probe = stack.enter_context(socket.socket(kind))
                        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        probe.bind((host, port))
            except OSError as error:
                reason = error
                continue
        return ports
    raise OSError(
        f"{count} neighbouring ports must be free at {', '.join(hosts)}, found none in {_TRIES} tries"
    ) from reason
