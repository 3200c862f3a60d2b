"""EMLIO's daemon and rank with keys."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from emlio import Security
from emlio.keys.folder import KeyFolder
from emlio.wire.protection import CLEAR
from emlio.wire.seal import CIPHERS

__all__ = ["WAYS", "KeyedSides", "RankTrust", "make_keys"]

WAYS: Final = {"sealed": ("aead", CIPHERS), "keyed": ("off", (CLEAR,))}
"""The encryption setting of both sides, and the protections that may result, for each way."""


class RankTrust(msgspec.Struct, frozen=True, kw_only=True):
    """The key settings of a loader.

    Attributes:
        keys: the loader's key folder.
        daemon_key: the public key that the daemon must have.
        encryption: the encryption setting.
    """

    keys: str
    daemon_key: str
    encryption: str

    @property
    def security(self) -> Security:
        """The same as an argument of the loader."""
        return Security(keys=self.keys, daemon_key=self.daemon_key, encryption=self.encryption)


class KeyedSides(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a daemon and a rank that have each other's keys.

    Attributes:
        daemon_flags: flags for `emlio-daemon`.
        rank: settings of the loader.
    """

    daemon_flags: tuple[str, ...]
    rank: RankTrust


@contextmanager
def make_keys(way: str) -> Generator[KeyedSides, None, None]:
    """Make new key pairs, and add the rank's key to the daemon's clients, while the block lasts.

    Args:
        way: a key of `WAYS`.
    """
    encryption, _ = WAYS[way]
    with tempfile.TemporaryDirectory(prefix="emlio-bench-keys-") as name:
        daemon, rank = KeyFolder(Path(name) / "daemon"), KeyFolder(Path(name) / "rank")
        daemon.make("daemon")
        rank.make("rank")
        daemon.allow("rank", rank.pair().public)
        yield KeyedSides(
            daemon_flags=("--keys", str(daemon.path), "--encryption", encryption),
            rank=RankTrust(keys=str(rank.path), daemon_key=str(daemon.pair().public), encryption=encryption),
        )
