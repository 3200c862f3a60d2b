"""The address at which metrics are served."""

import ipaddress
import re

from emlio.errors import ConfigError

__all__ = ["is_loopback", "parse_address"]

_ADDRESS = re.compile(r"(?:(?P<host>[^\[\]:\s]+|\[[^\[\]\s]+\]):)?(?P<port>[0-9]{1,5})")


def parse_address(text: object) -> tuple[str, int]:
    """Parse HOST:PORT, or a port of 127.0.0.1."""
    match = _ADDRESS.fullmatch(str(text).strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"the address of the metrics must be [HOST:]PORT, like 9477 or 0.0.0.0:9477, got {text!r}")
    return (match["host"] or "127.0.0.1").strip("[]"), int(match["port"])


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
