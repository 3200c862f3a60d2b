"""Where the data is: emlio://host:port[,host:port...]/name.

Covers: parsing and printing. Does not cover: names that stand for several addresses.
"""

import re
from dataclasses import dataclass

from emlio.errors import ConfigError

__all__ = ["DEFAULT_PORT", "Address", "Peer"]

DEFAULT_PORT = 5555
_SCHEME = "emlio://"
_PEER = re.compile(r"(\[[0-9A-Fa-f:.%a-z]+\]|[^:/\[\],\s]+)(?::(\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A daemon's control address."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65535:
            raise ConfigError(f"a daemon's port must be in [1, 65535], got {self.port}")

    def endpoint(self, port: int | None = None) -> str:
        """tcp://HOST:PORT, of the control port or another one on the same host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port if port is None else port}"

    def __str__(self) -> str:
        return self.endpoint()[len("tcp://") :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A dataset's name and the daemons that hold it, or parts of it."""

    peers: tuple[Peer, ...]
    dataset: str

    @staticmethod
    def parse(text: str) -> "Address":
        """The address in `text`."""
        form = "must be emlio://HOST:PORT[,HOST:PORT...]/DATASET"
        if not text.startswith(_SCHEME):
            raise ConfigError(f"an address {form}, got {text!r}")
        hosts, _, dataset = text[len(_SCHEME) :].partition("/")
        if not dataset or "/" in dataset:
            raise ConfigError(f"an address {form}, got {text!r} without one dataset's name")
        peers: list[Peer] = []
        for part in hosts.split(","):
            match = _PEER.fullmatch(part.strip())
            if match is None:
                raise ConfigError(f"an address {form}, got {part!r} as a daemon")
            peers.append(Peer(host=match[1].strip("[]"), port=int(match[2]) if match[2] else DEFAULT_PORT))
        if len(set(peers)) != len(peers):
            raise ConfigError(f"each daemon must be named once, got {hosts!r}")
        return Address(peers=tuple(peers), dataset=dataset)
