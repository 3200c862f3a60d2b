"""Other processes write to shards that are being sent from where they lie.

Covers: truncation under load, opening without writing, ranks that do not take what was sent. Does not cover: small records, which
are copied before they are sent (test_bad_data).
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.errors import DatasetError
from emlio_testing.datasets import make_dataset
from emlio_testing.leases import gives_leases, leases_on
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess, RankProcess

RECORDS = 40
SIZE = 2_000_000
SMALL_MEMORY = ("--memory", "16MiB", "--high-water-mark", "1", "--lanes", "1")
FOR_EVER_S = 20.0


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Records of 2 MB in two shards."""
    if not gives_leases(tmp_path):
        pytest.skip(f"the file system of {tmp_path} gives no leases")
    make_dataset(tmp_path / "large", records=RECORDS, shards=2, payload=SIZE)
    return tmp_path / "large"


def shards_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.tfrecord"))


def load(address: str, **options: object) -> EmlioLoader:
    arguments: dict[str, object] = {
        "batch_size": 2, "raw": True, "ids": True, "to": "numpy", "timeout": "20s", "prefetch": "8MiB", **options
    }  # fmt: skip
    return EmlioLoader(address, **loader_arguments(**arguments))


def checked(batches: Iterator[dict[str, Any]]) -> int:
    """How many records came; nothing wrong may be handed out."""
    count = 0
    for batch in batches:
        for record, number in zip(batch["record"], batch["__id__"].tolist(), strict=True):
            assert int.from_bytes(record[:8], "little") == number
            count += 1
    return count


WRITER = """
import os, sys

action, path = sys.argv[1:]
print("0", flush=True)
if action == "truncate":
    os.truncate(path, os.path.getsize(path) // 2)
else:
    open(path, "r+b").close()
print("1", flush=True)
"""


def test_a_shard_truncated_under_load_ends_its_stream_with_its_name_and_nothing_else(
    large: Path, small: Path, tmp_path: Path
) -> None:
    shard = shards_of(large)[1]
    with (
        DaemonProcess({"large": large, "small": small}, *SMALL_MEMORY, folder=tmp_path) as daemon,
        load(daemon.address("large"), shuffle=True, seed=1) as hurt,
        load(daemon.address("small"), batch_size=10) as other,
    ):
        batches = iter(hurt)
        next(batches)
        assert daemon.calms_down(), "all that can be on its way must be"
        assert leases_on(shard) == ["ACTIVE"], "the bytes must leave from where they lie"
        with RankProcess(WRITER, "truncate", str(shard)) as writer:
            assert writer.line(0) == 0
            with pytest.raises(DatasetError, match=re.escape(str(shard))) as got:
                checked(batches)
            assert writer.line(1) == 1
            assert writer.finish() == 0
        assert daemon.peer in str(got.value)
        assert checked(iter(other)) == 500
        assert daemon.running
        assert str(shard) in daemon.log
        assert "Traceback" not in daemon.log


def test_a_writer_that_only_opens_and_closes_changes_nothing_for_the_rank(large: Path, tmp_path: Path) -> None:
    first, second = shards_of(large)
    with (
        DaemonProcess({"large": large}, *SMALL_MEMORY, folder=tmp_path) as daemon,
        load(daemon.address("large"), shuffle=True, seed=1) as loader,
    ):
        batches = iter(loader)
        next(batches)
        assert daemon.calms_down()
        assert leases_on(second) == ["ACTIVE"]
        with RankProcess(WRITER, "open", str(second)) as writer:
            assert writer.line(0) == 0
            assert checked(batches) == RECORDS - 2
            assert writer.line(1) == 1
            assert writer.finish() == 0
        for _ in range(2):
            assert checked(iter(loader)) == RECORDS
        assert leases_on(first) == ["ACTIVE"]
        assert leases_on(second) == [], "what somebody may write to is copied from then on"
        assert daemon.running
        assert "Traceback" not in daemon.log


PATIENCE_S = 0.5
IMPATIENT = """
import json, sys
from pathlib import Path
from threading import Event
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon

data = tuple(DatasetSource(name=name, directory=Path(folder)) for name, folder in json.loads(sys.argv[1]).items())
config = DaemonConfig(data=data, bind=Endpoint(host="127.0.0.1", port=0))
with Daemon(config, writer_patience_s=float(sys.argv[2])) as daemon:
    print(json.dumps(daemon.endpoint), flush=True)
    daemon.wait()
"""


@pytest.mark.parametrize("action", ["truncate", "open"])
def test_a_rank_that_takes_nothing_cannot_keep_a_writer_waiting(
    large: Path, small: Path, tmp_path: Path, action: str
) -> None:
    shard = shards_of(large)[1]
    folders = f'{{"large": "{large}", "small": "{small}"}}'
    with RankProcess(IMPATIENT, folders, str(PATIENCE_S)) as daemon:
        address = daemon.line(0).replace("tcp", "emlio")
        with load(f"{address}/large", shuffle=True, seed=1) as idle, load(f"{address}/small", batch_size=10) as other:
            batches, others = iter(idle), iter(other)
            next(batches)
            next(others)
            assert daemon.calms_down(), "the rank's lane must be full"
            assert leases_on(shard) == ["ACTIVE"]
            with RankProcess(WRITER, action, str(shard)) as writer:
                assert writer.line(0) == 0
                begun = time.monotonic()
                assert writer.line(1, FOR_EVER_S) == 1
                waited_s = time.monotonic() - begun
                assert writer.finish() == 0
            # The system alone would make it wait for 45 s. The rest is for a machine that is busy with something else.
            assert waited_s < PATIENCE_S + 5
            with pytest.raises(DatasetError, match=f"another process waits to write to {re.escape(str(shard))}"):
                checked(batches)
            assert checked(others) == 490, "of another dataset"
        if action == "open":
            with load(f"{address}/large") as again:
                assert checked(iter(again)) == RECORDS
        assert daemon.running
        assert "Traceback" not in daemon.log
