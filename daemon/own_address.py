"""A check that the address to listen on belongs to this machine.

libzmq says "No such device" to a name that it cannot find, after the datasets were opened and perhaps scanned.

Covers: asking the system, before anything is opened. Does not cover: ports (emlio.daemon.transport), how addresses are written
(emlio.daemon.config).
"""

import errno
import socket

from emlio.daemon.config import Endpoint
from emlio.errors import ConfigError

__all__ = ["check_own_address"]


def check_own_address(endpoint: Endpoint) -> None:
    """Make sure that this machine can listen there; what the system cannot tell is left to the sockets.

    Raises:
        ConfigError: the host has no address, or not one of this machine.
    """
    host = endpoint.host
    if host == "*" or host in {name for _, name in socket.if_nameindex()}:
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        address = socket.getaddrinfo(host, 0, family, socket.SOCK_STREAM)[0][4]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(
                f"the host to listen at must be an address, name or network interface of this machine, got {endpoint}: "
                f"{error.strerror or error}. tcp://*:{endpoint.port} listens at all of them"
            ) from error
