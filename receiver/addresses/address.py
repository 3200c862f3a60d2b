"""The address of a dataset: one or more daemons, a directory on this host, or a bucket.

    emlio://[KEY@]host:port[,[KEY@]host:port...]/name
    s3://bucket/prefix and others of emlio.store.bucket.address, read without a daemon

Covers: parsing and printing. Does not cover: host names with several addresses
(emlio.receiver.addresses.host_names).
"""

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import cast
from urllib.parse import unquote

from emlio.errors import ConfigError
from emlio.index.opening import DatasetPath, advice
from emlio.keys.key import PublicKey, holds_secret
from emlio.store.bucket.address import ObjectAddress

__all__ = ["DEFAULT_PORT", "Address", "Peer", "Target"]

DEFAULT_PORT = 5555
_SCHEME = "emlio://"
_FILE_SCHEME = "file://"
_HERE = ("/", "./", "../", "~")
"""The beginnings of a directory. Any other text is one only if there is such a directory: it could be a
mistyped address."""

_LIKE_SCHEME = re.compile(r"(?:emlio:/*|tcp://)", re.IGNORECASE)
"""Another form of the scheme, as a user may write it and as a daemon's log has it."""

_SCHEMELESS = re.compile(r"[^/\s]+:[0-9]{1,5}(?:,[^/\s]+)?/[^/\s]+")

_PEER = re.compile(r"(?:([^@]*)@)?(\[[0-9A-Fa-f:.%a-z]+\]|[^:/\[\],\s@]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A daemon's control address.

    Attributes:
        host, port: of the control port.
        key: the key it must prove to have; None if it is not asked for one.
        dataset: the name of the dataset asked of it, if the loader mixes several; else "".
        part: the number of that dataset in the mixture.
        name: the host as the user wrote it, if `host` is one of its addresses; else "".
    """

    host: str
    port: int
    key: PublicKey | None = None
    dataset: str = ""
    part: int = 0
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65535:
            raise ConfigError(f"a daemon's port must be in [1, 65535], got {self.port}")

    def endpoint(self, port: int | None = None) -> str:
        """Return tcp://HOST:PORT, with the control port or another one on the same host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port if port is None else port}"

    @property
    def place(self) -> str:
        """HOST:PORT, whatever is asked of the daemon there."""
        return self.endpoint()[len("tcp://") :]

    @property
    def trusted_as(self) -> str:
        """HOST:PORT by which its key is looked up: with the name that the user wrote."""
        return f"{self.name}:{self.port}" if self.name else self.place

    def __str__(self) -> str:
        return f"{self.place}/{self.dataset}" if self.dataset else self.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A daemon named in the loader's address, by its own address or by a host name.

    Attributes:
        peer: the address that identifies it.
        ways: the addresses to reach it at, in the order to try them; none if the host name is not
            known.
        trouble: why the host name is not known; "" otherwise.
        guessed: whether the ways are those of several daemons, and which belong together is a
            guess.
    """

    peer: Peer
    ways: tuple[Peer, ...]
    trouble: str = ""
    guessed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A dataset's name, and the daemons, the directory or the bucket that hold it, or parts of it.

    Attributes:
        peers: the daemons; none if this process reads the whole dataset itself.
        dataset: its name at the daemons.
        directory: a directory on this host that holds shards of it, or the address of its objects.
        options: say how to read it; see `DatasetPath`.
        parts: the addresses of the datasets of a mixture. Then `peers` are the daemons of all of them.
    """

    peers: tuple[Peer, ...]
    dataset: str
    directory: Path | ObjectAddress | None = None
    options: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    parts: "tuple[Address, ...]" = ()

    @staticmethod
    def parse(address: "str | PathLike[str]", local: "str | PathLike[str] | None" = None) -> "Address":
        """Parse an address; `local` is a directory of this host that holds some of the shards."""
        text = _text("address", address)
        form = "must be emlio://HOST:PORT[,HOST:PORT...]/DATASET, s3://BUCKET/DATASET, or a directory"
        if ObjectAddress.is_one(text):
            if local is not None:
                raise ConfigError("local= cannot be used if the address is that of objects in a bucket")
            place = ObjectAddress.parse(text)
            return Address(peers=(), dataset=place.name, directory=place, options=place.options)
        if isinstance(address, PathLike) or _is_directory(text):
            if local is not None:
                raise ConfigError(f"local= cannot be used if the address is a directory, got {text!r}")
            folder, options = _place(text)
            return Address(peers=(), dataset=folder.name, directory=folder, options=options)
        shown = "what may hold a secret key" if holds_secret(text) else repr(text)
        if not text.startswith(_SCHEME):
            raise ConfigError(f"an address {form}, got {shown}{_what_was_meant(text)}")
        hosts, _, dataset = text[len(_SCHEME) :].partition("/")
        dataset = dataset.removesuffix("/")
        if "?" in dataset:
            raise ConfigError(
                f"an emlio:// address takes no options, got {shown}. Give those of a folder to the daemon, behind its "
                "--data; records are chosen by the loader's subset="
            )
        if not dataset or "/" in dataset:
            raise ConfigError(f"an address {form}, got {shown} without a dataset's name")
        if not text.isprintable() or " " in dataset:
            raise ConfigError(f"an address {form}, without control characters and unusual spaces, got {shown}")
        peers: list[Peer] = []
        for part in hosts.split(","):
            match = _PEER.fullmatch(part.strip(" "))
            if match is None or holds_secret(match[2], surely=True):
                raise ConfigError(
                    f"an address {form}, got {'a secret key' if holds_secret(part) else repr(part)} as a daemon"
                )
            key = _key(match[1], match[2]) if match[1] is not None else None
            peers.append(Peer(host=match[2].strip("[]"), port=int(match[3]) if match[3] else DEFAULT_PORT, key=key))
        if len(set(peers)) != len(peers):
            raise ConfigError(f"each daemon must be listed once, got {shown}")
        directory, options = _local(local) if local is not None else (None, dict[str, str]())
        return Address(peers=tuple(peers), dataset=dataset, directory=directory, options=options)

    def with_daemons_of(self, other: "Address") -> "Address":
        """Return an address with the same dataset at other daemons."""
        if self.parts:
            raise ConfigError(
                "the daemons of a mixture cannot be changed. Make a loader with the new addresses, and give it this one's state"
            )
        if other.dataset != self.dataset or other.directory is not None or not self.peers:
            raise ConfigError(
                f"other daemons must serve the loader's dataset, {self.dataset!r}, got {other.dataset!r}"
                + (f" in {other.directory}" if other.directory is not None else "")
            )
        return replace(self, peers=other.peers)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the datasets: of one, unless these are the parts of a mixture; equal ones with more of their address."""
        parts = self.parts or (self,)
        names = [part.dataset for part in parts]
        if len(set(names)) == len(names):
            return tuple(names)
        places = [str(part).split("/") for part in parts]
        for deep in range(2, max(map(len, places)) + 1):
            found = Counter(names)
            names = [
                name if found[name] == 1 else "/".join(place[-deep:]) for name, place in zip(names, places, strict=True)
            ]
        found = Counter(names)  # of one folder or bucket there may be several parts
        return tuple(name if found[name] == 1 else f"{name}#{number}" for number, name in enumerate(names))

    @property
    def mixed_names(self) -> tuple[str, ...]:
        """The names of the datasets of a mixture; none if this is one dataset."""
        return self.names if self.parts else ()

    @property
    def directories(self) -> "tuple[tuple[int, Path | ObjectAddress, Mapping[str, str]], ...]":
        """The directories or buckets that this process reads itself: the number of the dataset, the place, the options."""
        return tuple(
            (number, one.directory, one.options)
            for number, one in enumerate(self.parts or (self,))
            if one.directory is not None
        )

    def __str__(self) -> str:
        """Return the address without keys and options: emlio://HOST:PORT/DATASET, or the directory."""
        if self.parts:
            return " + ".join(map(str, self.parts))
        if self.peers:
            return f"{_SCHEME}{','.join(map(str, self.peers))}/{self.dataset}"
        return str(self.directory)


def _is_directory(text: str) -> bool:
    if text in (".", "..") or text.startswith((*_HERE, _FILE_SCHEME)):
        return True
    if text.startswith(_SCHEME):
        return False
    plain = text.partition("?")[0]
    # The rows of one large array are a dataset, too.
    return os.path.isdir(text) or os.path.isdir(plain) or (plain.lower().endswith(".npy") and os.path.isfile(plain))


def _what_was_meant(text: str) -> str:
    """Return advice on a text that is no address, as the end of an error."""
    plain = _LIKE_SCHEME.sub("", text)
    if (_SCHEMELESS.fullmatch(plain) or text.lower().startswith(_SCHEME)) and not holds_secret(text):
        return f"; did you mean {_SCHEME + plain!r}?"
    if "://" in text:
        return advice(text)
    found = "it is a file" if os.path.isfile(text) else "there is no such directory"
    return f", and {found}{advice(text)}"


def _text(name: str, path: "str | PathLike[str]") -> str:
    text = cast("object", fspath(path)) if isinstance(cast("object", path), str | bytes | PathLike) else path
    if name == "address" and isinstance(text, list | tuple):
        raise ConfigError(
            "address must be one text that names all daemons, emlio://HOST:PORT,HOST:PORT/DATASET, got "
            f"{path!r}. EmlioLoader mixes several datasets given as pairs with weights, [(ADDRESS, 0.7), (ADDRESS, 0.3)]; "
            "EmlioDataset takes one dataset"
        )
    if not isinstance(text, str) or "\0" in text:
        raise ConfigError(f"{name} must be text or a path, without zero bytes, got {path!r}")
    return text


def _key(text: str, host: str) -> PublicKey:
    """Return a daemon's key. An error names the daemon and not the key, which may be a secret one."""
    try:
        return PublicKey.parse(text)
    except ConfigError as error:
        raise ConfigError(f"the address's key of the daemon on {host}: {error}") from None


def _local(path: "str | PathLike[str]") -> tuple[Path, Mapping[str, str]]:
    """Return the directory that holds some of the shards. It must exist: it is given to save a transfer."""
    text = _text("local", path)
    if not text:
        raise ConfigError(f"local must be a directory of this host, or None, got {path!r}")
    place, options = _place(text)
    if not place.is_dir():
        what = "is no directory" if place.exists() else "does not exist"
        raise ConfigError(
            f"local must be a directory of this host, got {path!r}, which {what}. It holds shards to read; nothing is stored"
        )
    return place, options


def _place(text: str) -> tuple[Path, Mapping[str, str]]:
    """Return a directory and the options behind it."""
    if text.startswith(_FILE_SCHEME) or "?" not in text:
        return _directory(text), dict[str, str]()
    found = DatasetPath.parse(os.path.expanduser(text))
    return _directory(str(found.directory)), found.options


def _directory(text: str) -> Path:
    """Return the directory that a path or a file:// address names."""
    path = text
    if text.startswith(_FILE_SCHEME):
        host, slash, rest = text.removeprefix(_FILE_SCHEME).partition("/")
        if host not in ("", "localhost") or not slash:
            raise ConfigError(f"a file address must be file:///DIRECTORY of this host, got {text!r}")
        path = unquote(slash + rest)
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # ValueError: an escaped zero byte, half a character
        raise ConfigError(f"a directory must be a valid path, got {text!r}: {error}") from error
