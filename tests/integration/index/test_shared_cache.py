"""Indexes in a cache folder that several processes, or several hosts, use at once."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emlio.index.cache_folder import cache_folder
from emlio.index.opening import open_dataset
from emlio.index.range_index import ArrayFolders, load_index, save_index
from emlio_testing.format_datasets import FORMS

_OPENINGS = 40


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    FORMS["jsonl"].make(tmp_path / "data", 20)
    return tmp_path / "data"


def _opened(folder: Path, *, rebuild: bool = False) -> int:
    with open_dataset("x", folder, rebuild=rebuild) as dataset:
        return dataset.records


def _place(own_cache: Path) -> Path:
    (found,) = own_cache.rglob("ranges-*.json")
    return found


def _folders(own_cache: Path) -> list[Path]:
    return [path for path in own_cache.rglob("ranges-*") if path.is_dir()]


# ---- several processes ----------------------------------------------------------------------------------------------


def test_many_that_index_at_once_leave_one_index_and_all_keep_their_checksums(
    lines: Path, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: _opened(lines, rebuild=True), range(_OPENINGS))) == {20}
    assert len(_folders(own_cache)) == 1
    assert _folders(own_cache)[0].name.startswith(_place(own_cache).stem)
    assert "cannot be saved" not in caplog.text


def test_one_that_opens_while_others_store_indexes_always_finds_one(lines: Path, own_cache: Path) -> None:
    _opened(lines)
    place = _place(own_cache)
    with ThreadPoolExecutor(4) as pool:
        rebuilds = [pool.submit(_opened, lines, rebuild=True) for _ in range(_OPENINGS)]
        while not all(rebuild.done() for rebuild in rebuilds):
            assert load_index(place) is not None


def test_what_a_killed_process_left_is_removed_with_the_next_index(lines: Path, own_cache: Path) -> None:
    _opened(lines)
    place = _place(own_cache)
    shutil.copytree(_folders(own_cache)[0], place.parent / f"{place.stem}-0123456789ab")
    others = [place.parent / name for name in (f"{place.stem}-notes", "ranges-0123456789ab", "precious")]
    for other in others:
        other.mkdir()
    assert _opened(lines) == 20
    assert len(_folders(own_cache)) == 4, "nothing is removed without a new index"
    assert _opened(lines, rebuild=True) == 20
    assert sorted(path.name for path in place.parent.iterdir() if path.is_dir() and path not in others) == [
        index.about.folder for index in [load_index(place)] if index is not None
    ]
    assert all(other.is_dir() for other in others)


def test_folders_that_are_being_written_are_not_removed(lines: Path, own_cache: Path) -> None:
    _opened(lines)
    place = _place(own_cache)
    index = load_index(place)
    assert index is not None
    with ArrayFolders(place) as slower:
        folder = slower.new()
        save_index(place, index.about, index.arrays, index.checksums)
        assert folder.is_dir()
        assert slower.alone()
        slower.remove_all_but(folder.name)
    assert _folders(own_cache) == [folder]


# ---- several hosts --------------------------------------------------------------------------------------------------

_MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:2 - {kind} server:/home rw,vers=4.2
31 30 0:41 / /home/with\\040space rw - ext4 /dev/sdb1 rw
32 22 0:42 / /homestead rw - nfs4 server:/other rw
33 32 0:43 / /homestead rw - ext4 /dev/sdc1 rw
"""


@pytest.mark.parametrize("kind", ["nfs4", "nfs", "cifs", "lustre", "ceph", "fuse.sshfs", "fuse.glusterfs"])
def test_hosts_that_share_the_cache_folder_have_an_index_each(kind: str) -> None:
    mounts = _MOUNTS.format(kind=kind)
    places = {
        cache_folder(b"/data", Path("/home/me/.cache"), host=host, mounts=mounts) for host in ("one", "two", "one")
    }
    assert len(places) == 2


@pytest.mark.parametrize("cache", ["/var/cache", "/home/with space/x", "/homestead/x", "/homes"])
def test_a_cache_folder_on_a_disk_of_the_host_does_not_depend_on_its_name(cache: str) -> None:
    mounts = _MOUNTS.format(kind="nfs4")
    places = {cache_folder(b"/data", Path(cache), host=host, mounts=mounts) for host in ("one", "two")}
    assert len(places) == 1
    assert cache_folder(b"/other", Path(cache), host="one", mounts=mounts) not in places


@pytest.mark.parametrize("mounts", ["", "nothing that is known\n", "1 2 3 4\n\n"])
def test_without_a_table_of_mounts_a_cache_folder_is_taken_for_one_of_the_host(mounts: str) -> None:
    places = {cache_folder(b"/data", Path("/home"), host=host, mounts=mounts) for host in ("one", "two")}
    assert len(places) == 1
