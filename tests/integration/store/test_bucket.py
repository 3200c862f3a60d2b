"""Datasets in a bucket: the same records as from a folder, whatever the server and the network do."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.errors import DatasetError, EmlioError
from emlio.index.dataset import Dataset
from emlio.index.opening import DatasetPath, open_dataset
from emlio_testing.datasets import make_dataset
from emlio_testing.format_files import tar_of
from emlio_testing.object_proxy import ObjectProxy
from emlio_testing.object_server import ACCESS_KEY, ObjectServer, object_server
from emlio_testing.serving import raw_loader, served

_FORMATS = ("tfrecord", "tar", "files")
_RECORDS = 120
pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """A server with a dataset of each of the formats."""
    folder = tmp_path_factory.mktemp("objects")
    local = folder / "local"
    make_dataset(local / "tfrecord", records=_RECORDS, shards=3, payload=2000)
    _make_tars(local / "tar")
    for name in ("cats", "dogs"):
        (local / "files" / name).mkdir(parents=True)
        for number in range(_RECORDS // 2):
            (local / "files" / name / f"{number:03d}.bin").write_bytes(os.urandom(3000 + number))
    with object_server(folder) as running:
        for name in _FORMATS:
            running.put_folder(local / name, name)
        yield running


@pytest.fixture(scope="module", autouse=True)
def obstore_has_what_it_keeps(server: ObjectServer) -> None:
    """The library's threads and their descriptors are this process's until its end."""
    server.put("warm", b"x")


@pytest.fixture
def proxy(server: ObjectServer) -> Iterator[ObjectProxy]:
    with ObjectProxy(server.port) as proxy:
        yield proxy


def _make_tars(folder: Path) -> None:
    folder.mkdir(parents=True)
    for tar in range(2):
        members: list[tuple[str, bytes]] = []
        for number in range(_RECORDS // 2):
            members += [(f"{tar}{number:04d}.bin", os.urandom(4000)), (f"{tar}{number:04d}.cls", b"%d" % (number % 10))]
        (folder / f"shard-{tar}.tar").write_bytes(tar_of(members))


def _local(server: ObjectServer, name: str) -> Path:
    return server.folder / "local" / name


@contextmanager
def _opened(address: str, cache: Path) -> Iterator[Dataset]:
    path = DatasetPath.parse(address)
    with open_dataset("d", path.directory, cache, options=path.options) as dataset:
        yield dataset


def _served(address: str, tmp_path: Path, **changes: Any) -> AbstractContextManager[str]:
    return served(address, message_size=16384, memory=4 << 20, cache_dir=tmp_path / "indexes", **changes)


def _epoch(loader: EmlioLoader) -> list[tuple[int, bytes]]:
    """The records of an epoch with their ids, in their order."""
    found: list[tuple[int, bytes]] = []
    for batch in loader:
        found += zip(batch["__id__"].tolist(), [bytes(record) for record in batch["record"]], strict=True)
    return found


def _all_once(found: list[tuple[int, bytes]]) -> bool:
    return sorted(number for number, _ in found) == list(range(_RECORDS))


@pytest.mark.parametrize("name", _FORMATS)
def test_a_later_start_reads_no_object(server: ObjectServer, proxy: ObjectProxy, name: str, tmp_path: Path) -> None:
    with _opened(server.address(name, port=proxy.port), tmp_path) as dataset:
        entries = dataset.entries
    proxy.counts.clear()
    with _opened(server.address(name, port=proxy.port), tmp_path) as dataset:
        assert dataset.entries == entries
    assert set(proxy.counts) == {"list"}


@pytest.mark.parametrize("name", ["files", "tfrecord"])
def test_failing_and_slow_requests_lose_no_record(
    server: ObjectServer, proxy: ObjectProxy, name: str, tmp_path: Path
) -> None:
    proxy.failing, proxy.cutting, proxy.slow, proxy.delay_s = 0.1, 0.05, 0.05, 0.3
    with _served(server.address(name, port=proxy.port), tmp_path) as address, raw_loader(address) as loader:
        assert all(_all_once(_epoch(loader)) for _ in range(2))
    assert proxy.counts["failed"]


def test_a_server_that_is_away_for_a_while_only_delays(
    server: ObjectServer, proxy: ObjectProxy, tmp_path: Path
) -> None:
    with _served(server.address("tar", port=proxy.port), tmp_path) as address, raw_loader(address) as loader:
        found, back = list[tuple[int, bytes]](), Timer(1.5, lambda: setattr(proxy, "down", False))
        for place, batch in enumerate(loader):
            found += zip(batch["__id__"].tolist(), [bytes(record) for record in batch["record"]], strict=True)
            if place == 1:
                proxy.down = True
                back.start()
        back.join()
        assert _all_once(found)


def test_wrong_credentials_are_named_and_not_shown(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if server.kind == "moto":
        pytest.skip("moto accepts any credentials, and versitygw is not installed")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-value")
    refused = pytest.raises(DatasetError, match=r"s3://data/tar: cannot be listed: .*403.*credentials")
    with refused as caught, _opened(server.address("tar"), tmp_path):
        pass
    error: BaseException | None = caught.value
    while error is not None:
        for secret in ("wrong-secret-value", ACCESS_KEY, "Signature="):
            assert secret not in f"{error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_bucket_that_does_not_exist_is_named(server: ObjectServer, tmp_path: Path) -> None:
    address = server.address("x").replace("s3://data", "s3://other")
    with pytest.raises(DatasetError, match="s3://other/x: there is no such bucket"), _opened(address, tmp_path):
        pass


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_an_object_that_changes_meanwhile_is_an_error(server: ObjectServer, change: str, tmp_path: Path) -> None:
    prefix = f"changing-{change}"
    server.put_folder(_local(server, "files"), prefix)
    with _served(server.address(prefix), tmp_path) as address:
        for name in ("cats", "dogs"):
            for number in range(_RECORDS // 2):
                path = f"{prefix}/{name}/{number:03d}.bin"
                if change == "replaced":
                    server.put(path, os.urandom(3000 + number))
                else:
                    server.remove(path)
        with pytest.raises(EmlioError, match=rf"s3://data/{prefix}/.*(replaced|gone)"), raw_loader(address) as loader:
            _epoch(loader)
    if change == "replaced":  # a later start serves what is there now, and no old checksum stands against it
        with _served(server.address(prefix), tmp_path) as address, raw_loader(address) as loader:
            assert _all_once(_epoch(loader))


@pytest.mark.parametrize("name", _FORMATS)
def test_with_a_cache_the_second_epoch_reads_nothing(
    server: ObjectServer, proxy: ObjectProxy, name: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"object_cache": 64 << 20, "object_cache_dir": tmp_path / "cache"}
    with _served(server.address(name, port=proxy.port), tmp_path, **options) as address, raw_loader(address) as loader:
        first = _epoch(loader)
        proxy.counts.clear()
        assert _all_once(first)
        assert sorted(_epoch(loader)) == sorted(first)
        assert not proxy.counts["get"]
    with _served(server.address(name, port=proxy.port), tmp_path, **options) as address, raw_loader(address) as loader:
        assert _epoch(loader) == first
    assert not proxy.counts["get"], "the cache outlives the daemon"


def test_a_folder_and_a_bucket_are_copies_of_each_other(server: ObjectServer, tmp_path: Path) -> None:
    with (
        _served(str(_local(server, "tfrecord")), tmp_path) as one,
        _served(server.address("tfrecord"), tmp_path) as other,
    ):
        both = f"{one.removesuffix('/numbers')},{other.removeprefix('emlio://')}"
        with raw_loader(both) as loader:
            assert _all_once(_epoch(loader))


def test_another_server_gives_the_same_records(server: ObjectServer, tmp_path: Path) -> None:
    with object_server(tmp_path, "moto") as other, raw_loader(str(_local(server, "tar"))) as loader:
        other.put_folder(_local(server, "tar"), "tar")
        with raw_loader(other.address("tar")) as from_bucket:
            assert _epoch(from_bucket) == _epoch(loader)


def test_a_prefix_without_objects_is_named(server: ObjectServer, tmp_path: Path) -> None:
    refused = pytest.raises(DatasetError, match="s3://data/nothing: must hold a dataset")
    with refused, _opened(server.address("nothing"), tmp_path):
        pass
