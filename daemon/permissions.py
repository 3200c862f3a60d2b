"""Who may come in and what each may read, as the folder of client keys says at the moment.

Covers: asking the folder now and again, one snapshot that all threads read, what is wrong with the folder in the log. Does not
cover: the files (emlio.keys), ending sessions (emlio.daemon.control).
"""

import logging
from collections.abc import Iterable, Mapping

from emlio.daemon.config import DaemonConfig
from emlio.errors import ConfigError
from emlio.keys.allow_folder import AllowFolder
from emlio.keys.allow_list import AllowList, ClientRule
from emlio.keys.curve import KeyPair
from emlio.keys.folder import KeyFolder, default_key_folder
from emlio.keys.key import PublicKey

__all__ = ["LOOK_EVERY_NS", "Permissions", "find_keys"]

_LOG = logging.getLogger("emlio.daemon.gate")

LOOK_EVERY_NS = 1_000_000_000
"""Somebody who loses his permission loses it within a second."""


class Permissions:
    """See the module. `look` is the control thread's; the rest may be asked by any."""

    def __init__(self, folder: AllowFolder | None) -> None:
        """See the class; without a folder nobody is asked for a key, and everybody may read everything."""
        self._folder = folder
        self._list: AllowList | None = folder.load() if folder is not None else None
        self._tell_problems()

    @property
    def are_asked(self) -> bool:
        """Whether clients must show a key."""
        return self._folder is not None

    def look(self) -> bool:
        """Whether the folder says something else now."""
        changed = self._folder.changed() if self._folder is not None else None
        self._tell_problems()
        if changed is None:
            return False
        self._list = changed
        _LOG.info("%d clients may come in now", len(changed.rules))
        return True

    def knows(self, key: bytes) -> bool:
        """Whether this key may come in."""
        return self._rule(key) is not None

    def may_read(self, key: bytes, dataset: str) -> bool:
        """Whether this key may read the dataset of that name."""
        if self._list is None:
            return True
        rule = self._rule(key)
        return rule is not None and rule.may_read(dataset)

    def readable(self, key: bytes, datasets: Iterable[str]) -> list[str]:
        """Those that it may read: it is told of no others."""
        return [dataset for dataset in datasets if self.may_read(key, dataset)]

    def _rule(self, key: bytes) -> ClientRule | None:
        if self._list is None or not key:
            return None
        return self._list.find(PublicKey(raw=key))

    def _tell_problems(self) -> None:
        for problem in self._folder.take_problems() if self._folder is not None else ():
            _LOG.error("%s", problem)


def find_keys(config: DaemonConfig, environment: Mapping[str, str]) -> tuple[KeyPair | None, Permissions]:
    """The daemon's keys, and who may come in.

    Raises:
        ConfigError: clients are to be asked for keys, and there are none here.
    """
    if not config.asks_for_keys:
        return None, Permissions(None)
    folder = KeyFolder(config.keys if config.keys is not None else default_key_folder(environment))
    try:
        pair = folder.pair()
    except ConfigError as error:
        if config.keys is not None:
            raise
        raise ConfigError(
            f"{config.bind} can be reached from other machines, so clients must show keys, and this host has none: {error} "
            "Or bind to 127.0.0.1, or say --insecure if everyone on that network may read the data"
        ) from error
    return pair, Permissions(AllowFolder(folder.clients_path))
