"""A signal handler that raises an `OSError` while a small file is read: the file does not count as missing.

Covers: files that are read while a loader is made. Does not cover: errors made of such an exception
(tests/unit/receiver/threads/test_interrupts.py).
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from emlio import open_limits
from emlio.energy.values.run import boot_id
from emlio.index.opening import open_dataset
from emlio.keys import owners
from emlio.processor import has_aes, processor_times
from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.path_memory import KnownPaths
from emlio_testing.datasets import make_dataset


class _Alarm(TimeoutError):  # noqa: N818  # as a user's own
    """An `OSError`, which code may take for a failure of what it called."""


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise _Alarm("the user's")

    before = signal.signal(signal.SIGUSR1, ring)
    yield
    signal.signal(signal.SIGUSR1, before)


def _ring(*_: object, **__: object) -> Any:
    signal.raise_signal(signal.SIGUSR1)


class _StruckPath:
    """A path at which every access is interrupted."""

    read_text = stat = __fspath__ = _ring

    def __truediv__(self, _: str) -> "_StruckPath":
        return self


_STRUCK = cast("Path", _StruckPath())


def _look(path: str) -> os.stat_result:
    if path.startswith("/home"):
        _ring()
    return os.lstat("/")


@pytest.mark.parametrize(
    "read",
    [
        lambda: boot_id(_STRUCK),
        lambda: has_aes(_STRUCK),
        lambda: processor_times(_STRUCK),
        lambda: owners._unnamed(_STRUCK),
        lambda: owners.check_above(Path("/etc"), owners.Asker(user=0, home="/home/u", look=_look)),
        lambda: KnownPaths(_STRUCK).find(Peer(host="store1", port=5555)),
        open_limits.open_descriptors,
        open_limits.mapping_limit,
    ],
    ids=["boot", "processor", "idle", "users", "home", "paths", "descriptors", "mappings"],
)
def test_an_alarm_while_a_file_is_read_reaches_the_user(
    read: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.open_limits._DESCRIPTORS", _STRUCK)
    monkeypatch.setattr("emlio.open_limits._MAX_MAP_COUNT", _STRUCK)
    with pytest.raises(_Alarm):
        read()


def test_an_alarm_while_an_index_is_read_reaches_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dataset(tmp_path / "data", records=3, shards=1)
    open_dataset("d", tmp_path / "data", tmp_path / "cache").close()
    monkeypatch.setattr("emlio.index.range_index._mapped", _ring)
    with pytest.raises(_Alarm):
        open_dataset("d", tmp_path / "data", tmp_path / "cache")
