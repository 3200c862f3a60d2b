"""Work on a Ray cluster of two hosts, which are processes here: the same as without, also where one of them is killed."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader, Recovery
from emlio.cli import main
from emlio.errors import ClusterError, ConfigError, DatasetError
from emlio.prepare.convert import convert
from emlio.prepare.convert_options import ConvertOptions
from emlio.ray import OnRay, RayHosts
from emlio_testing.datasets import make_dataset, write_tfrecord
from emlio_testing.processes import settles
from emlio_testing.serving import served

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

RECORDS, BATCH = 120, 8


class Hosts:
    """A cluster whose hosts can be killed; one that does not run the tests is there again for each of them."""

    def __init__(self) -> None:
        node = {"num_cpus": 1, "node_ip_address": "127.0.0.5"}
        self._node = node
        self._cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        self._other: Any = None
        self.address = self._cluster.address

    def complete(self) -> None:
        """Start the other host if it is not there."""
        if self._other is None:
            self._other = self._cluster.add_node(**self._node)

    def kill(self) -> None:
        """Kill the other host and all its processes."""
        self._cluster.remove_node(self._other, allow_graceful=False)
        self._other = None

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """As for all tests, but of EMLIO's threads alone: Ray's client keeps sockets and processes until it is shut down."""
    yield
    assert settles(lambda: not [one.name for one in threading.enumerate() if one.name.startswith("emlio")], 10.0)


@pytest.fixture(scope="module")
def started() -> Iterator[Hosts]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        hosts = Hosts()
        patch.setenv("RAY_ADDRESS", hosts.address)
        try:
            yield hosts
        finally:
            hosts.close()


@pytest.fixture
def hosts(started: Hosts) -> Hosts:
    started.complete()
    return started


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _lines(folder: Path, packed: bool) -> Path:
    import gzip

    folder.mkdir()
    for number in range(3):
        text = "".join(f'{{"text": "line {number} {line}", "n": {line}}}\n' for line in range(50)).encode()
        name = folder / f"part-{number}.jsonl"
        if packed:
            name.with_suffix(".jsonl.gz").write_bytes(gzip.compress(text, mtime=0))
        else:
            name.write_bytes(text)
    return folder


def _table(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rows = {"text": [f"row {number}" for number in range(200)], "n": list(range(200))}
    pq.write_table(pa.table(rows), folder / "rows.parquet", row_group_size=50)
    return folder


def _records(folder: Path) -> Path:
    folder.mkdir()
    write_tfrecord(folder / "in.tfrecord", (number.to_bytes(8, "little") * 40 for number in range(300)))
    return folder


def _source(kind: str, folder: Path) -> Path:
    match kind:
        case "tfrecord":
            return _records(folder)
        case "parquet":
            return _table(folder)
        case _:
            return _lines(folder, packed=kind == "packed lines")


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        ("tfrecord", "tfrecord"),
        ("packed lines", "tfrecord"),
        ("parquet", "wds"),
        *(
            pytest.param(kind, to, marks=pytest.mark.slow)
            for kind, to in (
                ("tfrecord", "wds"),
                ("lines", "tfrecord"),
                ("lines", "wds"),
                ("packed lines", "wds"),
                ("parquet", "tfrecord"),
            )
        ),
    ],
)
def test_shards_are_those_that_one_process_makes(tmp_path: Path, hosts: Hosts, kind: str, to: Any) -> None:
    source = _source(kind, tmp_path / "source")
    here = convert(ConvertOptions(source=source, out=tmp_path / "here", to=to, shards=7))
    there = convert(ConvertOptions(source=source, out=tmp_path / "there", to=to, shards=7), engine=RayHosts())
    assert (there.records, there.size_bytes, there.shards) == (here.records, here.size_bytes, 7)
    assert _files(tmp_path / "there") == _files(tmp_path / "here")


def test_shards_of_a_killed_host_are_written_by_another_and_nothing_else_is_left(tmp_path: Path, hosts: Hosts) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    write_tfrecord(source / "in.tfrecord", (number.to_bytes(8, "little") * 500 for number in range(20_000)))
    options = ConvertOptions(source=source, out=out, shards=200)

    def kill() -> None:
        settles(lambda: len(list(out.glob("mapping_shard_*.json"))) >= 4, 60.0)
        hosts.kill()

    with _beside(kill):
        report = convert(options, engine=RayHosts())
    assert (report.records, report.shards, report.shards_found) == (20_000, 200, 0)
    convert(ConvertOptions(source=source, out=tmp_path / "here", shards=200))
    assert _files(out) == _files(tmp_path / "here")
    assert convert(options, engine=RayHosts()).shards_found == 200


def test_a_bad_item_is_named_with_the_host(tmp_path: Path, hosts: Hosts, capsys: pytest.CaptureFixture[str]) -> None:
    source = _records(tmp_path / "source")
    content = bytearray((source / "in.tfrecord").read_bytes())
    content[5000] ^= 1
    (source / "in.tfrecord").write_bytes(content)
    assert main(["convert", str(source), str(tmp_path / "out"), "--engine", "ray", "--shards", "5"]) == 2
    told = capsys.readouterr().err
    assert "record 14" in told
    assert f"(on {os.uname().nodename})" in told
    words = ["convert", str(source), str(tmp_path / "out"), "--engine", "ray", "--shards", "5", "--on-error", "skip"]
    assert main(words) == 0
    assert "299 records" in capsys.readouterr().out


def test_keys_that_occur_in_shards_of_two_hosts_are_refused(tmp_path: Path, hosts: Hosts) -> None:
    import io
    import tarfile

    source = tmp_path / "source"
    source.mkdir()
    for number in range(2):
        with tarfile.open(source / f"{number}.tar", "w") as archive:
            for key in range(20):
                member = tarfile.TarInfo("same.txt" if key == 7 else f"{number}-{key}.txt")
                member.size = 5
                archive.addfile(member, io.BytesIO(b"hello"))
    with pytest.raises(ConfigError, match="each sample must have a key of its own"):
        convert(ConvertOptions(source=source, out=tmp_path / "out", to="wds", shards=20), engine=RayHosts())


def test_a_host_that_would_make_other_shards_is_refused(tmp_path: Path, hosts: Hosts) -> None:
    from emlio.prepare.elsewhere import Elsewhere

    source = _records(tmp_path / "source")
    options = ConvertOptions(source=source, out=tmp_path / "out", shards=3)
    (tmp_path / "out").mkdir()
    gate = RayHosts().gate(str(tmp_path), None)
    elsewhere = Elsewhere(
        options=options, path=source, kind="tfrecord", given={}, fingerprint="other", agreed=(), gate=gate
    )
    with pytest.raises(DatasetError, match="must see the same items there as the host that asks"):
        elsewhere()


@pytest.mark.parametrize("form", ["tfrecord", "jsonl", "parquet"])
def test_an_index_is_that_of_one_process(tmp_path: Path, hosts: Hosts, form: str) -> None:
    data = tmp_path / "data"
    if form == "tfrecord":
        make_dataset(data, records=200, shards=9, payload=100)
    elif form == "jsonl":
        _lines(data, packed=False)
    else:
        _table(data)
    for engine in ("threads", "ray"):
        assert main(["index", str(data), "--cache-dir", str(tmp_path / engine), "--engine", engine, "--force"]) == 0
    here, there = (_index(tmp_path / engine) for engine in ("threads", "ray"))
    assert len(here) > 3
    assert here == there


def _index(cache: Path) -> dict[str, bytes]:
    """The files of an index. Its folder has a random name, which the description tells."""
    files = {path.name: path.read_bytes() for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"}
    (name,) = (path.name for path in cache.rglob("ranges-*.json"))
    about = json.loads(files[name])
    del about["folder"], about["crc"]
    return files | {name: json.dumps(about).encode()}


def _reversed(sample: Mapping[str, Any]) -> dict[str, Any]:
    number = int.from_bytes(sample["record"][:8], "little")
    return {"id": sample["__id__"], "number": number, "seed": sample["__seed__"], "values": np.full(4, number)}


def _values(loader: EmlioLoader, batches: int | None = None) -> list[list[int]]:
    found: list[list[int]] = []
    for batch in loader:
        assert batch["values"][:, 0].tolist() == batch["number"].tolist() == batch["id"].tolist()
        found.append([*batch["number"].tolist(), *batch["seed"].tolist()])
        if len(found) == batches:
            break
    return found


def _loader(address: str, transform: Any, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"raw": True, "ids": True, "seeds": True, "to": "numpy", "seed": 3}
    return EmlioLoader(address, BATCH, transform=transform, **usual | options)


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[str]:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=3, payload=100)
    with served(tmp_path / "numbers") as address:
        yield address


def test_batches_come_in_the_same_order_and_after_a_resume(hosts: Hosts, numbers: str) -> None:
    with _loader(numbers, _reversed) as loader:
        wanted = _values(loader)
    with _loader(numbers, OnRay(_reversed, records=3)) as loader:
        first = _values(loader, batches=5)
        state = loader.state_dict()
    with _loader(numbers, OnRay(_reversed, records=5)) as loader:
        loader.load_state_dict(state)
        assert first + _values(loader) == wanted


def test_a_killed_host_loses_no_record_and_changes_no_order(hosts: Hosts, numbers: str) -> None:
    def slow(sample: Mapping[str, Any]) -> dict[str, Any]:
        time.sleep(0.02)
        return _reversed(sample)

    with _loader(numbers, _reversed) as loader:
        wanted = _values(loader)
    with _loader(numbers, OnRay(slow, records=4)) as loader:
        found: list[list[int]] = []
        for batch in loader:
            found.append([*batch["number"].tolist(), *batch["seed"].tolist()])
            if len(found) == 3:
                hosts.kill()
    assert found == wanted


def test_what_the_function_refuses_is_told_or_left_out(hosts: Hosts, numbers: str) -> None:
    def picky(sample: Mapping[str, Any]) -> dict[str, Any]:
        if sample["__id__"] % 10 == 4:
            raise ValueError(f"I do not like {sample['__id__']}")
        return _reversed(sample)

    with _loader(numbers, OnRay(picky)) as loader, pytest.raises(ValueError, match="I do not like") as caught:
        _values(loader)
    assert any("in the transform of" in note for note in caught.value.__notes__)
    assert any("(on " in note for note in caught.value.__notes__)
    with _loader(numbers, OnRay(picky), recovery=Recovery(on_error="skip")) as loader:
        seen = sorted(number for batch in _values(loader) for number in batch[: len(batch) // 2])
    assert seen == [number for number in range(RECORDS) if number % 10 != 4]


def test_a_loader_closes_while_the_cluster_is_at_work(hosts: Hosts, numbers: str) -> None:
    def stuck(sample: Mapping[str, Any]) -> dict[str, Any]:
        if sample["__id__"] % 10 == 4:
            time.sleep(600)
        return _reversed(sample)

    begun = time.monotonic()
    with _loader(numbers, OnRay(stuck, records=2, tasks=4)):
        time.sleep(1)
    assert time.monotonic() - begun < 15


def test_a_cluster_that_is_gone_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch, numbers: str) -> None:
    ray.shutdown()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"the Ray cluster at 127\.0\.0\.1:1 must be reachable"):
        _loader(numbers, OnRay(_reversed))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"function": 3}, "OnRay must be given a function"),
        ({"function": _reversed, "records": 0}, "records"),
        ({"function": _reversed, "tasks": 0}, "tasks"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        OnRay(**arguments)
