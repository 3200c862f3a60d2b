"""The daemons this host knows, and the keys they must have.

A line is `HOST KEY` for every daemon of a host, or `HOST:PORT KEY` for one; a line with the port
takes precedence.
"""

import ipaddress
import re
from typing import Self

import msgspec

from emlio.errors import ConfigError
from emlio.keys.key import PublicKey, holds_secret
from emlio.keys.lines import Line, parse_lines

__all__ = ["DaemonPlace", "KnownDaemon", "KnownDaemons", "add_daemon"]

_PLACE = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._-]+)?\]|[^:/\[\],\s#*?@=]{1,255})(?::([0-9]{1,5}))?")


class DaemonPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a daemon, or of all daemons of a host.

    Attributes:
        host: a name in lower case, or an address in its shortest form, without brackets.
        port: of the control connection; None means any.
    """

    host: str
    port: int | None = None

    def __post_init__(self) -> None:
        if not self.host or self.host != _normal(self.host):
            raise ConfigError("a daemon's host must be a name in lower case or an address in its shortest form")
        if self.port is not None and not 1 <= self.port <= 65535:
            raise ConfigError(f"a daemon's port must be in [1, 65535], got {self.port}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT.

        Raises:
            ConfigError: the text is none of them.
        """
        match = _PLACE.fullmatch(text) if text.isprintable() and not holds_secret(text, surely=True) else None
        if match is None:
            shown = "a secret key" if holds_secret(text) else repr(text[:80])
            raise ConfigError(f"a daemon must be HOST or HOST:PORT, an IPv6 address in [brackets], got {shown}")
        return cls(host=_normal(match[1].strip("[]")), port=int(match[2]) if match[2] else None)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def _normal(host: str) -> str:
    """Return the canonical form of a host, without a name look-up."""
    try:
        return ipaddress.ip_address(host).compressed
    except ValueError:
        return host.lower()


class KnownDaemon(msgspec.Struct, frozen=True, kw_only=True):
    """An address, and the key that its daemon must have."""

    place: DaemonPlace
    key: PublicKey


class KnownDaemons(msgspec.Struct, frozen=True, kw_only=True):
    """The daemons known at one moment."""

    daemons: tuple[KnownDaemon, ...] = ()

    def __post_init__(self) -> None:
        seen: set[DaemonPlace] = set()
        for daemon in self.daemons:
            if daemon.place in seen:
                raise ConfigError(f"each daemon must be listed once, {daemon.place} is listed twice")
            seen.add(daemon.place)

    def find(self, host: str, port: int) -> PublicKey | None:
        """Return the key that the daemon must have; None if it is unknown.

        The host is a name, or an address without brackets.
        """
        keys = {daemon.place: daemon.key for daemon in self.daemons}
        host = _normal(host)
        return keys.get(DaemonPlace(host=host, port=port)) or keys.get(DaemonPlace(host=host))

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        """Parse the content of a file.

        Raises:
            ConfigError: a line is invalid, or names a daemon a second time; the message names file
                and line.
        """
        return cls(daemons=tuple(_parse(data, where).values()))


def _parse(data: bytes, where: str) -> dict[Line, KnownDaemon]:
    found: dict[Line, KnownDaemon] = {}
    lines: dict[DaemonPlace, Line] = {}
    for line in parse_lines(data, where):
        words = line.text.split()
        if len(words) != 2:
            raise line.error(f"must be HOST[:PORT] KEY, two words, has {len(words)}")
        try:
            daemon = KnownDaemon(place=DaemonPlace.parse(words[0]), key=PublicKey.parse(words[1]))
        except ConfigError as error:
            raise line.error(error) from error
        first = lines.setdefault(daemon.place, line)
        if first is not line:
            raise line.error(f"each daemon must be listed once, {daemon.place} is also on line {first.number}")
        found[line] = daemon
    return found


def add_daemon(data: bytes, daemon: KnownDaemon, *, where: str, replace: bool = False) -> bytes:
    """Return the file's content with this daemon added; everything else stays as users wrote it.

    Args:
        data: the file's content.
        daemon: the one to add.
        where: the file's name, for errors.
        replace: whether to replace another key.

    Raises:
        ConfigError: the file is not a list of daemons, or the daemon is known with another key.
    """
    entry = f"{daemon.place} {daemon.key}"
    for line, known in _parse(data, where).items():
        if known.place != daemon.place:
            continue
        if known.key == daemon.key:
            return data
        if not replace:
            raise line.error(
                f"{daemon.place} is already trusted with another key, {known.key.fingerprint} instead of "
                f"{daemon.key.fingerprint}. Ask its administrator whether the key was changed; if so, run: emlio "
                f"trust --replace {daemon.place} KEY"
            )
        texts = data.decode().split("\n")
        _, mark, comment = texts[line.number - 1].partition("#")
        texts[line.number - 1] = f"{entry}  {mark}{comment}".rstrip()
        return "\n".join(texts).encode()
    gap = b"" if not data or data.endswith(b"\n") else b"\n"
    return data + gap + f"{entry}\n".encode()
