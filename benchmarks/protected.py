"""Our daemon and rank with keys.

Covers: the ways to protect data by name, keys of both sides for one sample. Does not cover: the sample itself
(emlio.benchmarks.loader), what protection costs (emlio.benchmarks.protection_cost), whom it is against (docs/security.md).
"""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from emlio.keys.folder import KeyFolder
from emlio.wire.protection import CLEAR, CURVE
from emlio.wire.seal import CIPHERS

__all__ = ["WAYS", "KeyedSides", "RankTrust", "make_keys"]

WAYS: Final = {"sealed": ("aead", CIPHERS), "curve": ("curve", (CURVE,)), "keyed": ("off", (CLEAR,))}
"""For each way what both sides are told about encryption, and what may come of it."""


class RankTrust(msgspec.Struct, frozen=True, kw_only=True):
    """What a loader is told of keys.

    Attributes:
        keys: its folder.
        daemon_key: the key its daemon must have.
        encryption: how data may be protected.
    """

    keys: str
    daemon_key: str
    encryption: str


class KeyedSides(msgspec.Struct, frozen=True, kw_only=True):
    """Both ends of a delivery that know each other.

    Attributes:
        daemon_flags: for `emlio-daemon`.
        rank: for the loader.
    """

    daemon_flags: tuple[str, ...]
    rank: RankTrust


@contextmanager
def make_keys(way: str) -> Generator[KeyedSides, None, None]:
    """Fresh pairs, and the rank's key among the daemon's clients, while the block lasts.

    Args:
        way: one of WAYS.
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
