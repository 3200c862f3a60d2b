"""The file system of fsspec with a daemon: by itself, and under pyarrow and pandas."""

import errno
import os
import signal
import threading
from collections.abc import Generator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.files import Files

fsspec = pytest.importorskip("fsspec")


@dataclass
class _Site:
    folder: Path
    url: str
    system: Any

    def at(self, inside: str) -> str:
        return f"{self.url}/{inside}"


@pytest.fixture
def site(tmp_path: Path) -> Generator[_Site]:
    folder = tmp_path / "x"
    for name in ("a/deep", "b", "empty"):
        (folder / name).mkdir(parents=True)
    for number in range(40):
        (folder / "ab"[number % 2] / f"{number:02}.bin").write_bytes(os.urandom(900 + number))
    (folder / "a" / "deep" / "large.bin").write_bytes(os.urandom(7_000_000))
    (folder / "table.csv").write_bytes(b"x,y\n1,2\n3,4\n")
    (folder / "link").symlink_to("table.csv")
    (folder / "a" / "up").symlink_to("..")
    (folder / "broken").symlink_to("nothing")
    source = DatasetSource(name="x", directory=folder, options={"format": "files"})
    with Daemon(DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0))) as daemon:
        url = f"{daemon.endpoint.replace('tcp', 'emlio')}/x"
        system, _ = fsspec.url_to_fs(url)
        yield _Site(folder, url, system)
        system.close()


def _inside(site: _Site, names: list[str]) -> list[str]:
    place = site.url.removeprefix("emlio://")
    assert all(name.startswith(f"{place}/") for name in names)
    return sorted(name.removeprefix(f"{place}/") for name in names)


def test_the_file_system_is_found_by_its_entry_point() -> None:
    (found,) = (one for one in entry_points(group="fsspec.specs") if one.name == "emlio")
    assert found.value == "emlio.files.fsspec_library.EmlioFileSystem"
    assert fsspec.get_filesystem_class("emlio").protocol == "emlio"


def test_folders_are_listed_and_searched(site: _Site) -> None:
    system = site.system
    assert _inside(site, system.ls(site.url, detail=False)) == ["a", "b", "broken", "empty", "link", "table.csv"]
    files = [path for path in site.folder.rglob("*") if path.is_symlink() or path.is_file()]
    assert _inside(site, system.find(site.url)) == sorted(str(path.relative_to(site.folder)) for path in files)
    assert _inside(site, system.glob(site.at("b/0*.bin"))) == [
        "b/01.bin",
        "b/03.bin",
        "b/05.bin",
        "b/07.bin",
        "b/09.bin",
    ]
    assert _inside(site, system.glob(site.at("**/large.bin"))) == ["a/deep/large.bin"]
    assert system.du(site.at("b")) == sum(path.stat().st_size for path in (site.folder / "b").iterdir())


def test_what_is_known_of_an_entry(site: _Site) -> None:
    info = site.system.info(site.at("table.csv"))
    assert (info["type"], info["size"], info["mode"] & 0o222) == ("file", 12, 0)
    assert info["mtime"] == pytest.approx((site.folder / "table.csv").stat().st_mtime, abs=1e-6)
    assert site.system.modified(site.at("table.csv")).timestamp() == pytest.approx(info["mtime"], abs=1e-5)
    assert site.system.info(site.at("link"))["destination"] == "table.csv"
    assert site.system.info(site.at("link"))["size"] == 12
    for name, is_folder, is_file, exists in (
        ("", True, False, True),
        ("a", True, False, True),
        ("a/up", True, False, True),
        ("link", False, True, True),
        ("broken", False, False, True),
        ("nope", False, False, False),
        ("table.csv/x", False, False, False),
    ):
        path = site.at(name)
        found = site.system.isdir(path), site.system.isfile(path), site.system.exists(path)
        assert found == (is_folder, is_file, exists), name
    assert site.system.ukey(site.at("a")) == site.system.ukey(site.at("a"))


def test_files_are_opened_sought_and_read_as_text(site: _Site) -> None:
    whole = (site.folder / "a" / "deep" / "large.bin").read_bytes()
    with fsspec.open(site.at("a/deep/large.bin")) as file:
        assert file.read(10) == whole[:10]
        file.seek(-100, 2)
        assert file.read() == whole[-100:]
        file.seek(0)
        assert file.read() == whole
    with fsspec.open(site.at("link"), "rt") as file:
        assert file.readlines() == ["x,y\n", "1,2\n", "3,4\n"]
    for path, number in (("nope", errno.ENOENT), ("a", errno.EISDIR)):
        with pytest.raises(OSError, match=r".") as caught:
            fsspec.open(site.at(path)).open()
        assert caught.value.errno == number


def test_many_files_and_ranges_are_read_together(site: _Site) -> None:
    paths = [site.at(f"{'ab'[number % 2]}/{number:02}.bin") for number in range(40)]
    read = {path: (site.folder / path.removeprefix(f"{site.url}/")).read_bytes() for path in paths}
    assert site.system.cat(paths) == {path.removeprefix("emlio://"): data for path, data in read.items()}
    assert site.system.cat(paths[3]) == read[paths[3]]
    assert site.system.cat_file(paths[3], 5, -7) == read[paths[3]][5:-7]
    assert site.system.cat_ranges(paths, 10, 20) == [data[10:20] for data in read.values()]
    assert set(site.system.cat(site.at("b"), recursive=True).values()) == {
        path.read_bytes() for path in (site.folder / "b").iterdir()
    }


def test_paths_come_as_they_were_asked_for_each_once(site: _Site) -> None:
    place = site.url.removeprefix("emlio://")
    names = ["b/03.bin", "table.csv", "a/00.bin", "b/03.bin"]
    found = site.system.cat([f"emlio://{place}/{name}" for name in names])
    assert list(found) == [f"{place}/{name}" for name in names[:3]]
    assert list(found.values()) == [(site.folder / name).read_bytes() for name in names[:3]]
    assert set(site.system.cat([site.at("table.csv"), site.at("b/0*.bin")])) == {
        f"{place}/{name}" for name in ("table.csv", *(f"b/0{number}.bin" for number in (1, 3, 5, 7, 9)))
    }


def test_one_file_that_is_gone_does_not_keep_the_others(site: _Site) -> None:
    site.system.ls(site.url)
    (site.folder / "a" / "02.bin").unlink()
    paths = [site.at(f"a/{number:02}.bin") for number in range(0, 8, 2)] + [site.at("nope")]
    found = list(site.system.cat(paths, on_error="return").values())
    assert [type(one) for one in found] == [bytes, OSError, bytes, bytes, FileNotFoundError]
    assert found[1].errno == errno.EIO
    assert len(site.system.cat(paths, on_error="omit")) == 3
    with pytest.raises(OSError, match="was removed"):
        site.system.cat(paths)


@pytest.mark.parametrize(
    "write",
    [
        lambda system, url: system.open(f"{url}/new", "wb"),
        lambda system, url: system.open(f"{url}/table.csv", "ab"),
        lambda system, url: system.rm(f"{url}/table.csv"),
        lambda system, url: system.mkdir(f"{url}/new"),
        lambda system, url: system.makedirs(f"{url}/new", exist_ok=True),
        lambda system, url: system.mv(f"{url}/table.csv", f"{url}/new"),
        lambda system, url: system.pipe(f"{url}/new", b""),
        lambda system, url: system.touch(f"{url}/new"),
    ],
)
def test_what_would_write_is_refused(site: _Site, write: Any) -> None:
    with pytest.raises(OSError, match="Read-only file system") as caught:
        write(site.system, site.url)
    assert caught.value.errno == errno.EROFS


@pytest.mark.parametrize("path", ["emlio://", "emlio://127.0.0.1:5555", "emlio://127.0.0.1:5555/", "emlio://a b/c/d"])
def test_a_path_without_a_dataset_is_not_found(path: str) -> None:
    system = fsspec.filesystem("emlio")
    assert not system.exists(path)
    with pytest.raises(FileNotFoundError):
        system.ls(path)


def test_pyarrow_reads_its_tables(site: _Site) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    parquet.write_table(table({"n": list(range(1000))}), site.folder / "late.parquet")  # nothing was listed yet
    place = site.url.removeprefix("emlio://")
    assert parquet.read_table(f"{place}/late.parquet", filesystem=site.system)["n"].to_pylist() == list(range(1000))


def test_pandas_reads_its_tables(site: _Site) -> None:
    pandas = pytest.importorskip("pandas")
    assert pandas.read_csv(site.at("table.csv")).to_dict("list") == {"x": [1, 3], "y": [2, 4]}


def test_a_process_that_is_forked_while_another_thread_opens_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, real = Event(), Event(), Files.__init__

    def slow(made: Files, *given: Any, **options: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            goes_on.wait(30)
        real(made, *given, **options)

    monkeypatch.setattr(Files, "__init__", slow)
    system = fsspec.filesystem("emlio", skip_instance_cache=True)
    opens = Thread(target=system.files, args=("127.0.0.1:9/x/a",))
    opens.start()
    assert begun.wait(30)
    child = os.fork()
    if not child:
        signal.alarm(10)
        system.files("127.0.0.1:9/y/a")
        os._exit(0)
    goes_on.set()
    opens.join()
    assert os.waitpid(child, 0)[1] == 0
