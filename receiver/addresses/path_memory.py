"""The memory of paths to daemons: how many lanes each needed, and at which port.

A loader that knows a path connects its lanes together with its hello, which saves a round trip. If
the memory is wrong, other lanes are connected, as they would have been without it.

Covers: the memory, in the process and in a file. Does not cover: using it
(emlio.receiver.machine.source).
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any

from emlio.interrupts import is_interrupt
from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.known_path import KnownPath

__all__ = ["KnownPaths", "cache_file", "known_paths"]

_LOG = logging.getLogger("emlio.receiver")
_MOST_PATHS = 256
_MOST_BYTES = 64 << 10


def cache_file(environment: Mapping[str, str]) -> Path | None:
    """Return the file of paths: in EMLIO_CACHE, or in the user's cache folder.

    None if EMLIO_CACHE is empty, or there is no home directory.
    """
    told = environment.get("EMLIO_CACHE")
    if told is not None:
        return Path(told) / "paths.json" if told else None
    base = environment.get("XDG_CACHE_HOME") or (f"{home}/.cache" if (home := environment.get("HOME")) else "")
    return Path(base) / "emlio" / "paths.json" if base.startswith("/") else None


@cache
def known_paths(file: Path | None) -> "KnownPaths":
    """Return the paths that this process knows; all its loaders share them."""
    return KnownPaths(file)


class KnownPaths:
    """The known paths. Thread-safe.

    Processes may share the file: the last one to write a path wins.
    """

    def __init__(self, file: Path | None) -> None:
        """Use this file; without a file nothing outlives the process."""
        self._file = file
        self._lock = Lock()
        self._paths: dict[str, KnownPath] | None = None

    def find(self, peer: Peer) -> KnownPath | None:
        """Return what is known of the path to this address."""
        with self._lock:
            return self._known().get(peer.place)

    def learn(self, peer: Peer, path: KnownPath) -> None:
        """Record the path to this address."""
        with self._lock:
            known = self._known()
            if known.get(peer.place) != path:
                known[peer.place] = path
                # Only this path is written: another process may know newer values of the others.
                self._write(peer.place, path)

    def _known(self) -> dict[str, KnownPath]:
        if self._paths is None:
            self._paths = self._read()
        return self._paths

    def _read(self) -> dict[str, KnownPath]:
        found: dict[str, KnownPath] = {}
        if self._file is None:
            return found
        try:
            if self._file.stat().st_size > _MOST_BYTES:
                return found
            told: Any = json.loads(self._file.read_bytes())
            for name, path in told.items():
                with suppress(TypeError, ValueError, KeyError):
                    found[str(name)] = KnownPath(lanes=path["lanes"], offset=path["offset"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            if is_interrupt(error):
                raise
            _LOG.debug("remembered paths cannot be read: %s: %s", self._file, error)
        return found

    def _write(self, peer: str, path: KnownPath) -> None:
        if self._file is None:
            return
        paths = self._read()
        paths.pop(peer, None)
        kept = dict(list({**paths, peer: path}.items())[-_MOST_PATHS:])
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with NamedTemporaryFile("w", dir=self._file.parent, prefix=".paths-", delete=False) as file:
                try:
                    json.dump({name: asdict(path) for name, path in kept.items()}, file)
                    file.flush()
                    os.replace(file.name, self._file)
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            _LOG.debug("paths cannot be remembered: %s", error)
