"""`trace=`: a file for Perfetto with the stages of both sides on one clock."""

import json
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError
from emlio.receiver.observer import LoaderObserver
from emlio.receiver.trace import Trace, trace_path
from emlio_testing.datasets import make_dataset
from emlio_testing.serving import served

RECORDS, BATCH = 300, 10


def _events(path: Path) -> list[dict[str, Any]]:
    document = json.loads(path.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


@pytest.mark.parametrize("transform", [None, lambda sample: sample], ids=["plain", "transform"])
def test_each_message_and_batch_has_its_times_in_order(tmp_path: Path, transform: Any) -> None:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=2, payload=5000)
    source = DatasetSource(name="numbers", directory=tmp_path / "numbers")
    config = DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0), message_size=65536)
    out = tmp_path / "run.json"
    with Daemon(config) as daemon:
        address = f"{daemon.endpoint.replace('tcp', 'emlio')}/numbers"
        with EmlioLoader(address, BATCH, raw=True, to="numpy", epochs=2, trace=out, transform=transform) as loader:
            for _ in range(2):
                for _ in loader:
                    pass
            assert not out.exists(), "it is written at the end"
    events = _events(out)
    names = Counter(event["name"] for event in events)
    batches = RECORDS // BATCH
    assert names["wait for a batch"] == 2 * batches
    assert names["step"] == 2 * (batches - 1)
    made = [event["args"] for event in events if event["name"] == "make a batch"]
    assert {(one["epoch"], one["batch"]) for one in made} == {(epoch, at) for epoch in (0, 1) for at in range(batches)}
    reads = {event["id"]: event for event in events if event["ph"] == "b" and event["name"] == "read"}
    sent = [event for event in events if event["ph"] == "b" and event["name"] == "queued and sent"]
    assert sum(event["args"]["records"] for event in reads.values()) == 2 * RECORDS
    assert len(sent) == len(reads)
    ends = {event["id"]: event["ts"] for event in events if event["ph"] == "e"}
    for number, event in reads.items():
        assert event["ts"] <= ends[number]
        error_us = event["args"]["clock_error_us"]
        assert ends[number + 1] + error_us >= ends[number], "a message comes after it was read"
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert "training loop" in tracks
    assert any(name.endswith(": reads") for name in tracks)


def test_a_loader_that_is_closed_in_mid_flow_writes_its_trace_and_ends_its_threads(tmp_path: Path) -> None:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=2, payload=5000)
    source = DatasetSource(name="numbers", directory=tmp_path / "numbers")
    config = DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0), message_size=16384)
    with Daemon(config) as daemon:
        address = f"{daemon.endpoint.replace('tcp', 'emlio')}/numbers"
        for number in range(10):
            out = tmp_path / f"{number}.json"
            loader = EmlioLoader(address, BATCH, raw=True, to="numpy", trace=out)
            batches = iter(loader)
            for _ in range(RECORDS // BATCH // 2):
                next(batches)
            loader.close()
            assert _events(out)
            assert not any(thread.name.startswith("emlio-receive") for thread in threading.enumerate())


def test_a_trace_keeps_little_of_a_message_with_many_records() -> None:
    trace = Trace(Path("run.json"), LoaderObserver())
    trace.came(
        0, SimpleNamespace(epoch=1, slot=2, count=10_000, read_from_ns=3, read_to_ns=4, sizes=bytes(40_000)), 5, 6
    )
    assert list(trace._messages) == [(0, 1, 2, 10_000, 3, 4, 5, 6)]


def test_without_a_trace_headers_have_no_times_and_ranks_have_files_of_their_own(tmp_path: Path) -> None:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=2, payload=500)
    with EmlioLoader(
        tmp_path / "numbers", BATCH, raw=True, to="numpy", rank=0, world_size=1, trace=tmp_path / "a.json"
    ) as loader:
        next(iter(loader))
    names = {event["name"] for event in _events(tmp_path / "a.json")}
    assert "wait for a batch" in names
    assert "read" not in names, "no daemon sends anything"
    assert trace_path(tmp_path / "a.json", 3, 8) == tmp_path / "a.rank3.json"


def test_a_trace_keeps_the_messages_of_a_daemon_that_is_used_no_longer(tmp_path: Path) -> None:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=2, payload=5000)
    out = tmp_path / "run.json"
    with served(tmp_path / "numbers", "numbers") as one, served(tmp_path / "numbers", "numbers") as other:
        both = f"{one.removesuffix('/numbers')},{other.removeprefix('emlio://')}"
        with EmlioLoader(both, BATCH, raw=True, to="numpy", epochs=1, trace=out) as loader:
            for step, _ in enumerate(loader):
                if step == 0:
                    loader.use_daemons(one)
    reads = [event for event in _events(out) if event["ph"] == "b" and event["name"] == "read"]
    assert {event["cat"] for event in reads} == {
        f"{place.removeprefix('emlio://').removesuffix('/numbers')}: reads" for place in (one, other)
    }


def test_a_trace_is_refused_where_it_cannot_be_or_is_another_loaders(tmp_path: Path) -> None:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=2, payload=500)
    options: dict[str, Any] = {"batch_size": BATCH, "raw": True, "to": "numpy"}
    with pytest.raises(ConfigError, match="must name a file, got the folder"):
        EmlioLoader(tmp_path / "numbers", trace=tmp_path, **options)
    out = tmp_path / "run.json"
    for _ in range(2):
        with EmlioLoader(tmp_path / "numbers", trace=out, **options):
            for _ in range(2):
                with pytest.raises(ConfigError, match="a file of its own for each loader"):
                    EmlioLoader(tmp_path / "numbers", trace=out, **options)
            assert not out.exists()
        assert _events(out)
        out.unlink()


def test_a_trace_that_cannot_be_written_does_not_fail_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=2, payload=500)
    (tmp_path / "folder").mkdir()
    with EmlioLoader(tmp_path / "numbers", BATCH, raw=True, to="numpy", trace=tmp_path / "folder" / "a.json") as loader:
        next(iter(loader))
        (tmp_path / "folder").rmdir()
    assert "the trace cannot be written" in caplog.text
