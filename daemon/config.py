"""The configuration of a daemon: datasets, addresses, sizes.

Covers: the settings, their checks and the reasons for their defaults. Does not cover: reading flags
(emlio.daemon.cli), opening datasets.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio.errors import ConfigError
from emlio.settings import option
from emlio.units import format_duration, parse_duration_ns, parse_size
from emlio.wire.limits import MAX_LANES, MAX_NAME_LENGTH
from emlio.wire.protection import SETTINGS

__all__ = ["REMOVED_OPTIONS", "DaemonConfig", "DatasetSource", "Endpoint", "parse_path"]

REMOVED_OPTIONS: Final[Mapping[str, str]] = {
    "data-ports": "one port carries the data of all ranks: name it with data-port",
    "workers": "one thread sends the data of all ranks: leave workers out",
}
"""Options of former versions, with what to do instead."""

_MESSAGE_MOST = 4 << 20
_MESSAGE_LEAST = 2 << 20
"""Limits of the automatic message size. At 4 MiB the work per message is a tenth of the work per
byte, and larger messages gain little. With many lanes, 2 MiB cost both ends a tenth less per byte
than 1 MiB, and take half the memory of 4 MiB."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENDPOINT = re.compile(r"(?:tcp://)?(\[[0-9A-Fa-f:.]+\]|[^:/\[\]\s]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSource:
    """A dataset's name and its folder. Clients use the name, which never becomes a path."""

    name: str
    directory: Path

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > MAX_NAME_LENGTH:
            raise ConfigError(
                f"a dataset's name must be letters, digits, '.', '_' or '-', at most {MAX_NAME_LENGTH}, got {self.name!r}"
            )

    @staticmethod
    def parse(text: str) -> "DatasetSource":
        """Parse NAME=DIR, or DIR, where the name is that of the folder."""
        name, separator, directory = text.partition("=")
        path = parse_path(directory if separator else text)
        return DatasetSource(name=name if separator else path.resolve().name, directory=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A host and a port to listen on; port 0 lets the system choose."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"a port must be in [0, 65535], got {self.port}")

    @staticmethod
    def parse(text: Any) -> "Endpoint":
        """Parse tcp://HOST:PORT, with an IPv6 address in brackets."""
        match = _ENDPOINT.fullmatch(str(text)) if str(text).isprintable() else None
        if match is None:
            raise ConfigError(f"must be tcp://HOST:PORT (IPv6 in brackets), got {text!r}")
        return Endpoint(host=match[1].strip("[]"), port=int(match[2]))

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the endpoint."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"


def _port(text: Any) -> int:
    if not (str(text).strip().isdecimal() and 1 <= int(text) <= 65535):
        raise ConfigError(f"must be a port in [1, 65535], got {text!r}")
    return int(text)


def _whole(low: int, high: int) -> Any:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not str(value).strip().isdigit() or not low <= int(value) <= high:
            raise ConfigError(f"must be a whole number in [{low}, {high}], got {value!r}")
        return int(value)

    return parse


def _switch(value: Any) -> bool:
    if str(value).lower() in ("true", "1", "yes"):
        return True
    if str(value).lower() in ("false", "0", "no", ""):
        return False
    raise ConfigError(f"must be true or false, got {value!r}")


def _lanes(value: Any) -> int:
    parse = _whole(1, MAX_LANES)
    return 0 if value == "auto" else int(parse(value))


def _message_size(value: Any) -> int:
    return 0 if value == "auto" else parse_size(value)


def _log(value: Any) -> str:
    if value not in ("text", "json"):
        raise ConfigError(f"must be text or json, got {value!r}")
    return str(value)


def _encryption(value: Any) -> str:
    if value not in SETTINGS:
        raise ConfigError(f"must be one of {', '.join(SETTINGS)}, got {value!r}")
    return str(value)


def parse_path(value: Any) -> Path:
    """Return a path with ~ and ~NAME expanded to home directories."""
    try:
        path = Path(str(value)).expanduser()
        holds_zero = b"\0" in os.fsencode(path)
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"must be a path that can be found, got {value!r}: {error}") from error
    if holds_zero:
        raise ConfigError(f"must be a path without zero bytes, got {value!r}")
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """The complete configuration of one daemon."""

    data: tuple[DatasetSource, ...]
    bind: Endpoint = option(
        Endpoint(host="127.0.0.1", port=5555),
        "where ranks say hello; data has a port of its own, see --data-port. An address that other machines can reach needs keys "
        "(default tcp://127.0.0.1:5555)",
        parse=Endpoint.parse,
        metavar="tcp://HOST:PORT",
    )
    insecure: bool = option(
        False,
        "allow an address that other machines can reach although clients need no key",
        parse=_switch,
        switch=True,
    )
    keys: Path | None = option(
        None,
        "the folder that emlio keygen made: only clients allowed there may connect (default: no key is needed at an "
        "address of this machine; elsewhere the folder where emlio keygen puts keys)",
        parse=parse_path,
        metavar="DIR",
    )
    encryption: str = option(
        "auto",
        "of data: aead (AES-GCM or ChaCha20-Poly1305, whichever is fast), off; auto is aead where clients have keys "
        "(default auto)",
        parse=_encryption,
        metavar="auto|aead|off",
    )
    data_port: int = option(
        0,
        "port for data of all ranks, which a firewall must let in besides that of --bind (default: the one after that)",
        parse=_port,
        metavar="PORT",
    )
    readers: int = option(
        2,
        "threads that read ahead, for each dataset; a cold disk gains up to its queue depth, a warm cache needs one (default 2)",
        parse=_whole(1, 256),
        metavar="N",
    )
    lanes: int = option(
        0,
        "connections for data of each rank (lanes): auto takes what the rank derives from the round trip, a number is for all "
        "(default auto)",
        parse=_lanes,
        metavar="auto|N",
    )
    high_water_mark: int = option(
        16,
        "messages that may be under way on a lane, sent and not read by the rank; one that leaves in a single frame counts half. "
        "Bytes have a bound of their own (default 16)",
        parse=_whole(1, 120),
        metavar="N",
    )
    message_size: int = option(
        0,
        "bytes a message is filled to: auto is 4 MiB on a single lane, which costs least per byte, and less the more lanes "
        "there are, down to 2 MiB, which costs least memory (default auto)",
        parse=_message_size,
        metavar="auto|SIZE",
    )
    memory: int = option(
        512 << 20,
        "bytes read but not yet taken by the network, over all ranks (default 512MiB)",
        parse=parse_size,
        metavar="SIZE",
    )
    heartbeat_timeout: int = option(
        10_000_000_000,
        "a rank not heard for this long is dead: its lanes are closed, and its rank is free for another process. Ranks say "
        "something five times in it and more; one that was only stopped comes back by itself (default 10s)",
        parse=parse_duration_ns,
        metavar="TIME",
    )
    drain_timeout: int = option(
        10_000_000_000,
        "how long what was read may take to leave after SIGTERM (default 10s)",
        parse=parse_duration_ns,
        metavar="TIME",
    )
    cache_dir: Path | None = option(
        None, "where indexes go when a dataset's folder cannot be written", parse=parse_path, metavar="DIR"
    )
    energy: Path | None = option(
        None,
        "the file of this host's recorder (emlio energy record --out FILE), for ranks that ask what their epochs used here; "
        "opened when one asks (default: none, for not every host records)",
        parse=parse_path,
        metavar="FILE",
    )
    ready_file: Path | None = option(
        None, "write the real endpoints here as JSON once ranks may come", parse=parse_path, metavar="FILE"
    )
    log: str = option("text", "text for people or json for machines (default text)", parse=_log, metavar="text|json")

    def __post_init__(self) -> None:
        if not self.data:
            raise ConfigError("at least one dataset must be given: --data NAME=DIR")
        names = [source.name for source in self.data]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"dataset names must differ, given twice: {', '.join(twice)}")
        if self.insecure and self.keys is not None:
            raise ConfigError("--keys asks clients for keys, --insecure asks for none: give one of them")
        if not self.data_port and self.bind.port == 65535:
            raise ConfigError("--bind must leave the next port for data, got port 65535: name one with --data-port")
        if self.data_port and self.data_port == self.bind.port:
            raise ConfigError(f"--data-port must be another port than that of --bind, got {self.data_port} for both")
        if self.message_size and not 4096 <= self.message_size <= 64 << 20:
            raise ConfigError(f"--message-size must be auto or in [4 KiB, 64 MiB], got {self.message_size}")
        largest = self.message_bytes(1)
        if self.memory < 4 * largest:
            raise ConfigError(f"--memory must hold four messages of {largest} bytes, got {self.memory}")
        if self.heartbeat_timeout < 100_000_000:
            raise ConfigError(
                f"--heartbeat-timeout must be at least 100ms, got {format_duration(self.heartbeat_timeout)}"
            )

    @property
    def asks_for_keys(self) -> bool:
        """True if clients must show a key."""
        return self.keys is not None or not (self.bind.is_loopback or self.insecure)

    @property
    def data_endpoint(self) -> Endpoint:
        """The endpoint for lanes; port 0 leaves the choice to the system."""
        return Endpoint(host=self.bind.host, port=self.data_port or (self.bind.port and self.bind.port + 1))

    def message_bytes(self, lanes: int) -> int:
        """Return the size to which a stream with this many lanes fills its messages."""
        return self.message_size or max(_MESSAGE_MOST // lanes, _MESSAGE_LEAST)
