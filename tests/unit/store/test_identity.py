"""When a shard's file is still the one that was indexed: docs/internals/decisions/file-identity.md."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import DatasetError
from emlio.formats.tfrecord.scan import Framing, scan_file
from emlio.index.opening import open_dataset
from emlio.store.folder import Folder
from emlio_testing.datasets import make_dataset, write_tfrecord
from emlio_testing.reading import in_folder, page_cache

NAME = "train-00001-of-00003.tfrecord"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "data", records=30, shards=3, mapped=False)
    return tmp_path / "data"


def rewrite(path: Path, replace: bool) -> None:
    """Give a shard records of the same sizes and another content, and the times it had, as `cp -p` and `tar -x` do."""
    status = path.stat()
    with open_dataset("d", path.parent) as dataset:
        sizes = np.diff(next(shard for shard in dataset.shards if shard.name == path.name).offsets) - 16
    while path.stat().st_ctime_ns == status.st_ctime_ns:  # a clock of the file system may tick every 4 ms only
        target = path.with_suffix(".new") if replace else path
        write_tfrecord(target, [b"n" * int(size) for size in sizes])
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        target.rename(path)


@pytest.mark.parametrize("replace", [True, False])
def test_a_shard_of_the_same_sizes_with_its_time_set_back_is_scanned_again(foreign: Path, replace: bool) -> None:
    with open_dataset("d", foreign) as dataset:
        before = dataset.entries
    rewrite(foreign / NAME, replace)
    with open_dataset("d", foreign) as dataset:
        assert dataset.entries[1].digest != before[1].digest
        assert (dataset.entries[0], dataset.entries[2]) == (before[0], before[2])


@pytest.mark.parametrize("replace", [True, False])
def test_a_shard_of_the_same_sizes_with_its_time_set_back_is_noticed_while_it_is_served(
    foreign: Path, replace: bool
) -> None:
    with open_dataset("d", foreign) as dataset:
        shards = page_cache(dataset)
        try:
            shards.check(np.arange(3), 10**18)
            rewrite(foreign / NAME, replace)
            for check in (shards.check_paths, lambda: shards.check(np.arange(3), 2 * 10**18)):
                with pytest.raises(DatasetError, match=f"{NAME}.*(was replaced|its content had digest)"):
                    check()
        finally:
            shards.close()


def test_other_permissions_and_a_hard_link_are_no_change(foreign: Path) -> None:
    with open_dataset("d", foreign) as dataset:
        before = dataset.entries
        shards = page_cache(dataset)
        try:
            (foreign / NAME).chmod(0o600)
            os.link(foreign / NAME, foreign.parent / "backup")
            shards.check_paths()
            shards.check(np.arange(3), 10**18)
        finally:
            shards.close()
    with open_dataset("d", foreign) as dataset:
        assert dataset.entries == before


def test_a_shard_whose_time_of_change_differs_is_scanned_once_however_many_threads_look(foreign: Path) -> None:
    class Slow(Folder):
        scans = 0

        def open(self, name: str) -> int:
            Slow.scans += 1
            time.sleep(0.05)  # so that all others look meanwhile
            return super().open(name)

    with open_dataset("d", foreign) as found, Slow(foreign) as slow:
        shards = page_cache(in_folder(found, slow))
        ctime = (foreign / NAME).stat().st_ctime_ns
        while (foreign / NAME).stat().st_ctime_ns == ctime:
            (foreign / NAME).chmod(0o640)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: shards.check_paths(), range(8)))
        shards.close()
    assert Slow.scans == 1


def _meanwhile(monkeypatch: pytest.MonkeyPatch, acts: list[Callable[[Path], None]]) -> None:
    """Do the next of these to a shard whenever it was scanned and is not looked at yet."""

    def scan_and_act(file: Any, size_bytes: int, shown: str, *more: Any) -> Framing:
        found = scan_file(file, size_bytes, shown, *more)
        path = Path(shown)
        if path.name == NAME and acts:
            act, status = acts.pop(0), path.stat()
            while path.stat().st_ctime_ns == status.st_ctime_ns:
                act(path)
        return found

    monkeypatch.setattr("emlio.formats.tfrecord.tfrecords.scan_file", scan_and_act)


def _link(path: Path) -> None:
    other = path.with_suffix(".link")
    other.unlink(missing_ok=True)
    os.link(path, other)


def _rewrite_in_place(path: Path) -> None:
    rewrite(path, replace=False)


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def test_a_link_made_while_a_shard_is_scanned_is_no_change(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _meanwhile(monkeypatch, [_link])
    with open_dataset("d", foreign) as dataset:
        assert dataset.records == 30
        shards = page_cache(dataset)
        shards.check_paths()
        shards.close()


def test_a_shard_rewritten_while_it_is_scanned_is_not_taken_for_what_was_scanned(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_dataset("d", foreign, rebuild=True) as before:
        digests = {shard.name: shard.digest for shard in before.shards}
    _meanwhile(monkeypatch, [_rewrite_in_place])
    with open_dataset("d", foreign, rebuild=True) as dataset:
        shards = page_cache(dataset)
        with pytest.raises(DatasetError, match="its content had digest"):
            shards.check_paths()
        shards.close()
    with open_dataset("d", foreign) as dataset:
        assert [shard.name for shard in dataset.shards if shard.digest != digests[shard.name]] == [NAME]


def test_a_shard_that_is_written_to_while_it_is_scanned_is_an_error(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _meanwhile(monkeypatch, [_append])
    with pytest.raises(DatasetError, match="changed while it was indexed"):
        open_dataset("d", foreign)
