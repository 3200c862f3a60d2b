"""The configuration of a daemon: datasets, addresses, sizes.

Covers: the settings, their checks and the reasons for their defaults. Does not cover: reading flags
(emlio.daemon.cli), opening datasets.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from emlio.dataset_name import DatasetName
from emlio.errors import ConfigError
from emlio.index.opening import DatasetPath
from emlio.metrics.address import parse_address
from emlio.reading.direct.io_choice import IoModes
from emlio.reading.direct.io_settings import IoSettings
from emlio.settings import option
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.block_cache import LEAST_CACHE_BYTES
from emlio.units import format_duration, parse_duration_ns, parse_size
from emlio.wire.limits import MAX_LANES, MAX_NAME_LENGTH
from emlio.wire.protection import SETTINGS

__all__ = ["DATASETS_BESIDE", "DaemonConfig", "DatasetSource", "Endpoint", "parse_path"]

DATASETS_BESIDE: Final = "datasets.d"
"""The folder of descriptions beside a configuration file, if no other one is named."""

_MESSAGE_ALONE_BYTES = 8 << 20
_MESSAGE_BYTES = 2 << 20
"""The automatic size of messages: on one lane, if the memory has room for four of them, and on each of several. With 8 MiB on
one lane both ends take a tenth less processor time than with 4. With many lanes, 2 MiB cost both ends a tenth less per byte
than 1 MiB, and take half the memory of 4 MiB."""

_PART_AHEAD = 4
_PART_SHARED = 2
_SCHEME = "emlio://"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENDPOINT = re.compile(r"(?:tcp://)?(\[[0-9A-Fa-f:.]+\]|[^:/\[\]\s]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSource:
    """A generation of a dataset and its folder or address. Clients use the name, which never becomes a path."""

    name: str
    directory: Path | ObjectAddress
    options: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    generation: int = 1

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > MAX_NAME_LENGTH:
            raise ConfigError(
                f"a dataset's name must be 1 to {MAX_NAME_LENGTH} letters, digits, '.', '_' or '-' and begin with a "
                f"letter or digit, got {self.name!r}"
            )

    @staticmethod
    def parse(text: str) -> "DatasetSource":
        """Parse NAME=DIR, or DIR, where the name is that of the folder; options may follow it.

        DIR may be the address of objects, such as s3://BUCKET/PREFIX.
        """
        name, separator, place = text.partition("=")
        if not separator or "?" in name or "://" in name:
            name, place = "", text
        path, _ = _place(place)
        own = path.name if isinstance(path, ObjectAddress) else path.resolve().name
        return DatasetSource.named(name if separator and name else own, place)

    @staticmethod
    def named(name: str, place: str) -> "DatasetSource":
        """Return the source of NAME or NAME@GENERATION, in a folder or at an address; NAME is NAME@1."""
        known = DatasetName.parse(name)
        path, options = _place(place)
        return DatasetSource(
            name=known.name,
            directory=path,
            options=options,
            generation=known.generation or 1,
        )

    @property
    def full_name(self) -> str:
        """NAME@GENERATION; only NAME for the first generation."""
        return str(DatasetName(self.name, self.generation if self.generation != 1 else None))


def _place(text: str) -> tuple[Path | ObjectAddress, Mapping[str, str]]:
    """Return a folder or an address, and the options behind it."""
    if text.startswith(_SCHEME):
        raise ConfigError(
            f"must be a folder of this host or the address of objects such as s3://BUCKET/PREFIX, got {text!r}: that is "
            "the address of a daemon"
        )
    found = DatasetPath.parse(text)
    place = found.directory
    return place if isinstance(place, ObjectAddress) else parse_path(str(place)), found.options


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
    if value == "auto":
        return 0
    with suppress(ConfigError):
        return int(_whole(1, MAX_LANES)(value))
    raise ConfigError(f"must be auto or a whole number in [1, {MAX_LANES}], got {value!r}")


def _message_size(value: Any) -> int:
    if value == "auto":
        return 0
    with suppress(ConfigError):
        if size := parse_size(value):
            return size
    raise ConfigError(f"must be auto or a size in [4KiB, 64MiB], such as '2MiB', got {value!r}")


def _cache_size(value: Any) -> int:
    size = parse_size(value)
    if 0 < size < LEAST_CACHE_BYTES:
        raise ConfigError(f"must be 0 or at least {LEAST_CACHE_BYTES} bytes, got {size}")
    return size


def _one_of(*choices: str) -> Any:
    def parse(value: Any) -> str:
        if value not in choices:
            raise ConfigError(f"must be one of {', '.join(choices)}, got {value!r}")
        return str(value)

    return parse


def parse_path(value: Any) -> Path:
    """Return a path with ~ and ~NAME expanded to home directories."""
    try:
        path = Path(str(value)).expanduser()
        holds_zero = b"\0" in os.fsencode(path)
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"must be a valid path, got {value!r}: {error}") from error
    if holds_zero:
        raise ConfigError(f"must be a path without zero bytes, got {value!r}")
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """The complete configuration of one daemon."""

    data: tuple[DatasetSource, ...]
    bind: Endpoint = option(
        Endpoint(host="127.0.0.1", port=5555),
        "address of the control port, where ranks connect first; records use --data-port. An address that other "
        "machines can reach requires keys (default: tcp://127.0.0.1:5555)",
        parse=Endpoint.parse,
        metavar="tcp://HOST:PORT",
    )
    insecure: bool = option(
        False,
        "allow clients without keys at an address that other machines can reach",
        parse=_switch,
        switch=True,
    )
    keys: Path | None = option(
        None,
        "key folder made by emlio keygen; only clients allowed in it may connect (default: no keys at a loopback "
        "address, otherwise the folder where emlio keygen writes keys)",
        parse=parse_path,
        metavar="DIR",
    )
    records_only: bool = option(
        False,
        "let clients read records only, not the other files in datasets' folders: no emlio mount, no emlio.files",
        parse=_switch,
        switch=True,
    )
    encryption: str = option(
        "auto",
        "encryption of records: aead (AES-GCM or ChaCha20-Poly1305, whichever is faster) or off; auto means aead if "
        "clients have keys, else off (default: auto)",
        parse=_one_of(*SETTINGS),
        metavar="auto|aead|off",
    )
    data_port: int = option(
        0,
        "port for the records of all ranks; a firewall must allow it and the port of --bind (default: the port of "
        "--bind plus 1)",
        parse=_port,
        metavar="PORT",
    )
    readers: int = option(
        2,
        "reading threads per dataset; an uncached disk gains from more, up to its queue depth, cached data needs one "
        "(default: 2)",
        parse=_whole(1, 256),
        metavar="N",
    )
    lanes: int = option(
        0,
        "lanes (TCP connections for records) per rank: auto uses the number that each rank derives from its round "
        "trip, N applies to all ranks (default: auto)",
        parse=_lanes,
        metavar="auto|N",
    )
    high_water_mark: int = option(
        16,
        "most messages in flight on a lane, sent and not yet read by the rank; a message of a single frame counts "
        "half. Bytes have their own limit (default: 16)",
        parse=_whole(1, 120),
        metavar="N",
    )
    message_size: int = option(
        0,
        "target size of a message, in [4KiB, 64MiB]; a longer record is sent alone. auto is 8 MiB on a single lane, the "
        "cheapest per byte, or what a slow one carries in half a second, or a quarter of --memory; and 2 MiB on several "
        "lanes, which saves memory (default: auto)",
        parse=_message_size,
        metavar="auto|SIZE",
    )
    memory: int = option(
        512 << 20,
        "most memory for records read and not yet sent, over all ranks: four messages at least (default: 512MiB)",
        parse=parse_size,
        metavar="SIZE",
    )
    group_memory: int = option(
        1 << 30,
        "most memory for row groups of Parquet and Arrow files that are kept, over all datasets; one group may be "
        "larger (default: 1GiB)",
        parse=parse_size,
        metavar="SIZE",
    )
    io: IoModes = option(
        IoModes(),
        "how files are read: cache (through the page cache), direct (past it), or auto: direct for a dataset larger than "
        "half of the memory that is free when it is opened. NAME=MODE says it of one dataset, as in auto,images=direct "
        "(default: auto)",
        parse=IoModes.parse,
        metavar="MODE[,NAME=MODE...]",
    )
    io_settings: IoSettings = option(
        IoSettings(),
        "how much direct reading asks of a disk at once, as emlio-bench disk --sweep FILE found it (default: 256 "
        "transfers of at most 1 MiB)",
        parse=IoSettings.read,
        metavar="FILE",
    )
    heartbeat_timeout: int = option(
        10_000_000_000,
        "a rank silent for this long is lost: its lanes are closed, and another process may take its place. Ranks "
        "send at least five messages in this time; a rank that was only paused reconnects by itself (default: 10s)",
        parse=parse_duration_ns,
        metavar="TIME",
    )
    drain_timeout: int = option(
        10_000_000_000,
        "time limit after SIGTERM for sending what was already read (default: 10s)",
        parse=parse_duration_ns,
        metavar="TIME",
    )
    cache_dir: Path | None = option(
        None, "directory for indexes if a dataset's own folder is not writable", parse=parse_path, metavar="DIR"
    )
    object_cache: int = option(
        0,
        "keep what is read from buckets on a local disk, at most this much; the least recently used is dropped "
        "(default: no cache)",
        parse=_cache_size,
        metavar="SIZE",
    )
    object_cache_dir: Path | None = option(
        None,
        "directory for --object-cache, used by one daemon at a time (default: objects in the directory for indexes)",
        parse=parse_path,
        metavar="DIR",
    )
    datasets_dir: Path | None = option(
        None,
        "folder of descriptions, NAME.toml or NAME@GENERATION.toml, one for each dataset; a daemon that runs looks "
        "each second for new and removed ones, see emlio publish (default: datasets.d beside the file of --config, "
        "if there is one)",
        parse=parse_path,
        metavar="DIR",
    )
    metrics: tuple[str, int] | None = option(
        None,
        "serve /metrics for Prometheus, /healthz and /readyz over HTTP at this address, without a password (default "
        "host: 127.0.0.1, this machine only; default: nothing is served)",
        parse=parse_address,
        metavar="[HOST:]PORT",
    )
    energy: Path | None = option(
        None,
        "recording of this host's energy (emlio energy record --out FILE), for ranks that request the energy of "
        "their epochs; opened at the first request (default: none)",
        parse=parse_path,
        metavar="FILE",
    )
    ready_file: Path | None = option(
        None,
        "write the actual endpoints to this file, as JSON, once the daemon accepts ranks",
        parse=parse_path,
        metavar="FILE",
    )
    log: str = option(
        "text",
        "format of the log: text, or json for machines (default: text)",
        parse=_one_of("text", "json"),
        metavar="text|json",
    )

    def __post_init__(self) -> None:
        if not self.data and self.datasets_dir is None:
            raise ConfigError("at least one dataset must be given: --data NAME=DIR")
        names = [source.full_name for source in self.data]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"dataset names must differ, given twice: {', '.join(twice)}")
        if self.insecure and self.keys is not None:
            raise ConfigError(
                "--keys and --insecure exclude each other: --keys requires keys of clients, --insecure requires none"
            )
        if not self.data_port and self.bind.port == 65535:
            raise ConfigError(
                "--bind must leave the next port free for data, got port 65535; choose a data port with --data-port"
            )
        if self.data_port and self.data_port == self.bind.port:
            raise ConfigError(f"--data-port must differ from the port of --bind, got {self.data_port} for both")
        if self.message_size and not 4096 <= self.message_size <= 64 << 20:
            raise ConfigError(f"--message-size must be auto or in [4 KiB, 64 MiB], got {self.message_size}")
        largest = self.message_size or _MESSAGE_ALONE_BYTES // 2
        if self.memory < 4 * largest:
            raise ConfigError(
                f"--memory must be at least {4 * largest >> 10:,} KiB (four messages of {largest >> 10:,} KiB, or of a smaller "
                f"--message-size), got {self.memory:,} bytes"
            )
        if self.heartbeat_timeout < 100_000_000:
            raise ConfigError(
                f"--heartbeat-timeout must be at least 100ms, got {format_duration(self.heartbeat_timeout)}"
            )

    @property
    def ahead_bytes(self) -> int:
        """The part of the memory for requests ahead, once there is a dataset in a bucket or one that is read directly.

        At 1 GB/s and 100 ms, 100 MB are under way.
        """
        return self.memory // _PART_AHEAD

    @property
    def shared_bytes(self) -> int:
        """The part of the memory for records that several jobs need, while there are such jobs."""
        return self.memory // _PART_SHARED

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
        return self.message_size or (_MESSAGE_BYTES if lanes > 1 else min(_MESSAGE_ALONE_BYTES, self.memory // 4))
