"""A check that the address to listen on belongs to this machine.

For a name that it cannot resolve, libzmq reports only "No such device", after the datasets were
opened and perhaps scanned.

Covers: asking the system, before anything is opened. Does not cover: ports
(emlio.daemon.network.transport), the syntax of addresses (emlio.daemon.config).
"""

import errno
import socket

from emlio.daemon.config import Endpoint
from emlio.errors import ConfigError

__all__ = ["check_own_address"]


def check_own_address(endpoint: Endpoint) -> None:
    """Check that this machine can listen there; other errors are left to the sockets.

    Raises:
        ConfigError: the host has no address, or its address is not one of this machine.
    """
    host = endpoint.host
    if host == "*" or host in {name for _, name in socket.if_nameindex()}:
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        address = socket.getaddrinfo(host, 0, family, socket.SOCK_STREAM)[0][4]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except UnicodeError as error:  # an empty label, or one of more than 63 characters
        raise _not_own(endpoint, "not a valid host name") from error
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise _not_own(endpoint, error.strerror or str(error)) from error


def _not_own(endpoint: Endpoint, reason: str) -> ConfigError:
    return ConfigError(
        f"--bind must be an address, name or network interface of this machine, got {endpoint}: {reason}. "
        f"tcp://*:{endpoint.port} listens on all addresses"
    )
