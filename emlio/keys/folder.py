"""The key folder: this host's key pair, the clients it lets in, the daemons it knows.

secret.key        this host's secret key; only its owner may read it
public.key        its public part, which is given to others
clients/NAME.key  a public key that may connect, and the datasets it may read
daemons           HOST[:PORT] KEY on each line
"""

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from emlio.errors import ConfigError
from emlio.keys.allow_folder import MAX_CLIENTS, AllowFolder
from emlio.keys.allow_list import ALL_DATASETS, ClientRule, check_client_name
from emlio.keys.curve import KeyPair
from emlio.keys.guarded_files import (
    check_folder,
    make_folder,
    put_file,
    put_new_file,
    read_file,
    remove_file,
    sole_writer,
)
from emlio.keys.key import PublicKey, SecretKey
from emlio.keys.known_daemons import DaemonPlace, KnownDaemon, KnownDaemons, add_daemon
from emlio.keys.lines import parse_lines

__all__ = ["KeyFolder", "default_key_folder"]

_Key = TypeVar("_Key")


def default_key_folder(environment: Mapping[str, str]) -> Path:
    """Return EMLIO_HOME, else emlio in XDG_CONFIG_HOME, else ~/.config/emlio."""
    if environment.get("EMLIO_HOME"):
        return Path(environment["EMLIO_HOME"]).absolute()
    settings = environment.get("XDG_CONFIG_HOME", "")
    if settings.startswith("/"):  # the specification says to ignore a relative path
        return Path(settings) / "emlio"
    try:
        home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    except RuntimeError as error:
        raise ConfigError("no key folder: this user has no home directory. Set EMLIO_HOME to the folder") from error
    return home / ".config" / "emlio"


class KeyFolder:
    """A folder with keys. Nothing is cached; each call reads the files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.secret_path = path / "secret.key"
        self.public_path = path / "public.key"
        self.clients_path = path / "clients"
        self.daemons_path = path / "daemons"

    def make(self, name: str) -> bool:
        """Write a new pair and return True; return False and keep the pair if there is one.

        Args:
            name: of this host, for people who read the files.

        Raises:
            ConfigError: the folder cannot be used, or holds an incomplete pair.
        """
        check_client_name(name)
        make_folder(self.path)
        with sole_writer(self.path):
            if os.path.lexists(self.secret_path):
                # A crash may have left the secret key without its public key.
                if not os.path.lexists(self.public_path):
                    self._put_public(self.pair().public, name)
                return False
            if os.path.lexists(self.public_path):
                raise ConfigError(
                    f"{self.public_path}: its secret key {self.secret_path} is missing. Restore it, or remove the "
                    f"public key and make a new pair: {self.how_to_make}"
                )
            pair = KeyPair.make()
            text = f"# The secret key of {name}: keep it private and on this host.\n"
            made = put_new_file(self.secret_path, f"{text}{pair.secret.reveal()}\n".encode(), 0o600)
            if made:
                self._put_public(pair.public, name)
            return made

    def _put_public(self, key: PublicKey, name: str) -> None:
        put_file(self.public_path, f"# The public key of {name}: it may be shared.\n{key}\n".encode(), 0o644)

    @property
    def how_to_make(self) -> str:
        """The command that makes keys in this folder."""
        return f"emlio keygen --folder {shlex.quote(str(self.path))}"

    def pair(self) -> KeyPair:
        """Return this host's pair.

        Raises:
            ConfigError: there is none, or its files are unsafe or invalid.
        """
        pair = self.find_pair()
        if pair is None:
            raise ConfigError(f"{self.secret_path}: this host has no key. Make one: {self.how_to_make}")
        return pair

    def find_pair(self) -> KeyPair | None:
        """Return this host's pair; None if it has none.

        Raises:
            ConfigError: its files are unsafe or invalid.
        """
        try:
            check_folder(self.path)
            data = read_file(self.secret_path, secret=True)
        except FileNotFoundError:
            return None
        pair = KeyPair.of(_only_key(data, str(self.secret_path), SecretKey.parse))
        try:
            written = _only_key(read_file(self.public_path), str(self.public_path), PublicKey.parse)
        except FileNotFoundError:
            return pair  # the secret key is sufficient
        if written != pair.public:
            raise ConfigError(
                f"{self.public_path}: must hold the public key of secret.key, {pair.public.fingerprint}, holds "
                f"{written.fingerprint}. If secret.key is right, remove public.key and run: {self.how_to_make}"
            )
        return pair

    def allow(self, name: str, key: PublicKey, datasets: tuple[str, ...] = ALL_DATASETS) -> tuple[str, ...]:
        """Let a client in, or change the datasets it may read; return those it could read before.

        Raises:
            ConfigError: the name belongs to another key, the key has another name, or the folder
                cannot be written.
        """
        rule = ClientRule(name=name, key=key, datasets=datasets)
        make_folder(self.path)
        make_folder(self.clients_path)
        with sole_writer(self.path):
            there = AllowFolder(self.clients_path).look().rules
            path = self._client_path(name)
            known = {other.name: other for other in there}.get(name)
            if known is not None and known.key != key:
                raise ConfigError(
                    f"{path}: {name} already has another key, {known.key.fingerprint} instead of {key.fingerprint}. "
                    f"To replace it, first run: emlio revoke {name}"
                )
            if known is None and os.path.lexists(path):
                raise ConfigError(
                    f"{path}: exists and is not valid, emlio keys shows why. To remove it, run: emlio revoke {name}"
                )
            other = next((other for other in there if other.key == key and other.name != name), None)
            if other is not None:
                raise ConfigError(
                    f"{self._client_path(other.name)}: this key is already allowed, under the name {other.name}"
                )
            if known is None and len(list(self.clients_path.glob("*.key"))) >= MAX_CLIENTS:
                raise ConfigError(
                    f"{self.clients_path}: must hold at most {MAX_CLIENTS} clients, and is full. Remove one with "
                    "emlio revoke"
                )
            put_file(path, rule.text(), 0o644)
            return known.datasets if known is not None else ()

    def revoke(self, name: str) -> None:
        """Withdraw a client's permission.

        Raises:
            ConfigError: there is no client of that name, or its file cannot be removed.
        """
        path = self._client_path(check_client_name(name))
        try:
            remove_file(path)
        except FileNotFoundError as error:
            raise ConfigError(f"{path}: no client of this name; emlio keys lists all clients") from error

    def _client_path(self, name: str) -> Path:
        return self.clients_path / f"{name}.key"

    def known_daemons(self) -> KnownDaemons:
        """Return the daemons this host knows; none if there is no file.

        Raises:
            ConfigError: the file is unreadable or unsafe, or a line is invalid.
        """
        return KnownDaemons.parse(self._daemons(), str(self.daemons_path))

    def trust(self, place: DaemonPlace, key: PublicKey, *, replace: bool = False) -> bool:
        """Store a daemon's key; return whether that changed the file.

        Args:
            place: a daemon, or all daemons of a host.
            key: the key that the daemon must have.
            replace: whether to replace another key.

        Raises:
            ConfigError: the daemon is known with another key, or the file cannot be used.
        """
        make_folder(self.path)
        with sole_writer(self.path):
            before, where = self._daemons(), str(self.daemons_path)
            after = add_daemon(before, KnownDaemon(place=place, key=key), where=where, replace=replace)
            if after == before:
                return False
            KnownDaemons.parse(after, where)  # never write what could not be read again
            put_file(self.daemons_path, after, 0o644)
            return True

    def _daemons(self) -> bytes:
        try:
            check_folder(self.path)
            return read_file(self.daemons_path)
        except FileNotFoundError:
            return b""


def _only_key(data: bytes, where: str, parse: Callable[[str], _Key]) -> _Key:
    lines = parse_lines(data, where)
    if len(lines) != 1:
        raise ConfigError(f"{where}: must hold one key on a line of its own, holds {len(lines)} lines besides comments")
    try:
        return parse(lines[0].text)
    except ConfigError as error:
        raise lines[0].error(error) from error
