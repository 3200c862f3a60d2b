"""The allowed clients and the datasets that each may read, from the folder of client keys.

Covers: checking the folder periodically, one snapshot that all threads read, logging problems of
the folder. Does not cover: the files (emlio.keys), ending sessions (emlio.daemon.control.thread).
"""

import logging
import os
from collections.abc import Iterable, Mapping

from emlio.daemon.config import DaemonConfig
from emlio.errors import ConfigError
from emlio.keys.allow_folder import AllowFolder
from emlio.keys.allow_list import AllowList
from emlio.keys.curve import KeyPair
from emlio.keys.folder import KeyFolder, default_key_folder
from emlio.keys.key import PublicKey

__all__ = ["Permissions", "find_keys"]

_LOG = logging.getLogger("emlio.daemon.gate")

_LOOK_EVERY_NS = 1_000_000_000
_WARN_EVERY_NS = 60_000_000_000


class Permissions:
    """The permissions of all clients.

    The control thread calls `look`; any thread may call the rest.
    """

    def __init__(self, folder: AllowFolder | None) -> None:
        """See the class; without a folder, clients need no key and may read every dataset."""
        self._folder = folder
        # Before the first `emlio allow` there is no folder: no client is admitted, and `look` says so.
        self._list = folder.load() if folder is not None and os.path.lexists(folder.path) else AllowList()
        self._before = self._list
        # Even an idle daemon must notice a new client.
        self._look_at_ns = 0 if folder is not None else None
        self._warn_at_ns: int | None = None

    @property
    def are_asked(self) -> bool:
        """True if clients must have a key."""
        return self._folder is not None

    def deadline_ns(self) -> int | None:
        """Return the latest time at which `look` must be called."""
        return self._look_at_ns

    def look(self, now_ns: int) -> bool:
        """Check the folder if it is time; return whether a session may have lost its permission."""
        if self._folder is None or (self._look_at_ns is not None and now_ns < self._look_at_ns):
            return False
        self._look_at_ns = now_ns + _LOOK_EVERY_NS
        changed = self._folder.changed()
        for problem in self._folder.take_problems():
            _LOG.error("%s", problem)
        if self._folder.obstacle is not None and (self._warn_at_ns is None or now_ns >= self._warn_at_ns):
            self._warn_at_ns = now_ns + _WARN_EVERY_NS
            _LOG.warning("%s. Clients allowed before stay allowed", self._folder.obstacle)
        if changed is not None:
            _LOG.info("clients allowed to connect: %d", len(changed.rules))
        former, self._before, self._list = self._before, self._list, changed or self._list
        return former is not self._before or self._before is not self._list

    def knows(self, key: bytes) -> bool:
        """Return whether this key is allowed."""
        return bool(key) and self._list.find(PublicKey(raw=key)) is not None

    def may_read(self, key: bytes, dataset: str) -> bool:
        """Return whether this key may begin to read the dataset of that name."""
        return self._folder is None or _allows(self._list, key, dataset)

    def may_read_on(self, key: bytes, dataset: str) -> bool:
        """Return whether a session may go on.

        A file that is just being written is no reason to end a session: the next `look` decides.
        """
        return self.may_read(key, dataset) or _allows(self._before, key, dataset)

    def readable(self, key: bytes, datasets: Iterable[str]) -> list[str]:
        """Return the datasets that this key may read. The client is told of no others."""
        return [dataset for dataset in datasets if self.may_read(key, dataset)]


def _allows(clients: AllowList, key: bytes, dataset: str) -> bool:
    rule = clients.find(PublicKey(raw=key)) if key else None
    return rule is not None and rule.may_read(dataset)


def find_keys(config: DaemonConfig, environment: Mapping[str, str]) -> tuple[KeyPair | None, Permissions]:
    """Return the daemon's keys and the clients' permissions.

    Raises:
        ConfigError: clients need keys, and this host has none, or unusable ones.
    """
    if not config.asks_for_keys:
        return None, Permissions(None)
    folder = KeyFolder(config.keys if config.keys is not None else default_key_folder(environment))
    why = f"{config.bind} can be reached from other machines, which requires keys, and this host"
    if config.keys is not None:
        pair = folder.pair()
    else:
        try:
            found = folder.find_pair()
        except ConfigError as error:
            raise ConfigError(f"{why}'s keys are not usable: {error}") from error
        if found is None:
            raise ConfigError(
                f"{why} has none: {folder.secret_path} does not exist. Make keys with {folder.how_to_make}, bind to "
                "127.0.0.1, or give --insecure if everyone on that network may read the data"
            )
        pair = found
    return pair, Permissions(AllowFolder(folder.clients_path))
