"""Every format in a bucket: each record once, as from a folder. Marked slow: 600 MB, with a server that fails."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.tfrecord import frame
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.object_proxy import ObjectProxy
from emlio_testing.object_server import ObjectServer, object_server

_LARGE_RECORDS = 6000
_LARGE_BYTES = 100_000
pytestmark = pytest.mark.usefixtures("own_cache")


# ---- 600 MB ---------------------------------------------------------------------------------------------------------


def _record(number: int) -> bytes:
    return number.to_bytes(8, "little") + np.random.default_rng(number).bytes(_LARGE_BYTES - 8)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server(tmp_path_factory.mktemp("large"), "versitygw") as running:
        _put_large(running)
        yield running


def _put_large(server: ObjectServer) -> None:
    for shard in range(16):
        numbers = range(_LARGE_RECORDS * shard // 16, _LARGE_RECORDS * (shard + 1) // 16)
        records = {number: _record(number) for number in numbers}
        server.put(f"large-tfrecord/{shard:05d}.tfrecord", b"".join(frame(record) for record in records.values()))
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for number, record in records.items():
                member = tarfile.TarInfo(f"{number:06d}.bin")
                member.size = len(record)
                archive.addfile(member, io.BytesIO(record))
        server.put(f"large-tar/{shard:05d}.tar", packed.getvalue())


def _epoch(loader: EmlioLoader, column: str) -> list[int]:
    return sorted(int.from_bytes(bytes(record[:8]), "little") for batch in loader for record in batch[column])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "column"), [("large-tfrecord", "record"), ("large-tar", "bin")])
def test_600_mb_come_once_though_requests_fail_and_with_a_cache_nothing_is_read_again(
    large: ObjectServer, name: str, column: str, tmp_path: Path
) -> None:
    with ObjectProxy(large.port) as proxy:
        proxy.failing, proxy.slow, proxy.delay_s = 0.1, 0.1, 0.3
        config = DaemonConfig(
            data=(DatasetSource.parse(f"d={large.address(name, port=proxy.port)}"),),
            bind=Endpoint(host="127.0.0.1", port=0),
            cache_dir=tmp_path / "indexes",
            object_cache=2 << 30,
            object_cache_dir=tmp_path / "cache",
        )
        arguments: dict[str, Any] = {"batch_size": 64, "to": "numpy", "timeout": "120s", "seed": 3, "drop_last": False}
        if column == "record":
            arguments["raw"] = True
        with Daemon(config) as daemon:
            address = f"{daemon.endpoint.replace('tcp', 'emlio')}/d"
            with EmlioLoader(address, **loader_arguments(**arguments)) as loader:
                assert _epoch(loader, column) == list(range(_LARGE_RECORDS))
                assert proxy.counts["failed"]
                proxy.counts.clear()
                assert _epoch(loader, column) == list(range(_LARGE_RECORDS))
                assert not proxy.counts["get"]
