"""Work on a Ray cluster of two hosts, which are processes here: the same as without, also where one of them is killed."""

import json
import os
import re
import subprocess
import sys
import tempfile
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
from emlio.status.verdict import Bound
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

    @contextmanager
    def host_with(self, **resources: float) -> Iterator[None]:
        """Start one more host, which has these resources."""
        more = self._cluster.add_node(**self._node, resources=resources)
        yield
        self._cluster.remove_node(more)

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


def _slow(sample: Mapping[str, Any]) -> dict[str, Any]:
    time.sleep(0.02)
    return _reversed(sample)


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
    with _loader(numbers, _reversed) as loader:
        wanted = _values(loader)
    with _loader(numbers, OnRay(_slow, records=4)) as loader:
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


class _MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(("kind", "told"), [("generator", TypeError), ("error without words", _MuteError)])
def test_what_cannot_be_sent_or_told_is_an_error_of_the_record(
    hosts: Hosts, numbers: str, kind: str, told: type[Exception]
) -> None:
    def odd(sample: Mapping[str, Any]) -> Any:
        if sample["__id__"] != 17:
            return _reversed(sample)
        if kind == "generator":
            return (number for number in range(3))
        raise _MuteError

    for transform in (OnRay(odd, records=4), odd):
        if isinstance(transform, OnRay) or told is not TypeError:
            with _loader(numbers, transform, recovery=Recovery(on_error="skip")) as loader:
                assert sum(len(batch["id"]) for batch in loader) == RECORDS - 1
    if told is TypeError:
        with _loader(numbers, OnRay(odd)) as loader, pytest.raises(told, match="cannot pickle"):
            _values(loader)


def test_what_bounds_a_loader_is_named(hosts: Hosts, numbers: str) -> None:
    with _loader(numbers, OnRay(_slow, records=4)) as loader:
        _values(loader)
        assert loader.explain().bound is Bound.ELSEWHERE
        assert "the transform on the Ray cluster" in loader.stats().verdict


def test_resources_that_no_host_has_are_named_at_once_and_are_an_error_in_the_end(
    hosts: Hosts, numbers: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = OnRay(_reversed, options={"resources": {"decoder": 1}})
    with _loader(numbers, lost, recovery=Recovery(timeout="11s")) as loader:
        assert "no host of the Ray cluster has 1 decoder" in caplog.text
        with pytest.raises(ClusterError, match="no host of the Ray cluster has 1 decoder"):
            _values(loader)
    assert "_reversed on the Ray cluster still runs" in caplog.text


@pytest.mark.slow
def test_a_host_that_joins_later_is_waited_for(hosts: Hosts, numbers: str) -> None:
    found: list[int] = []
    with (
        _loader(numbers, OnRay(_reversed, options={"resources": {"decoder": 1}})) as loader,
        _beside(lambda: found.extend(next(iter(loader))["number"].tolist())),
        hosts.host_with(decoder=1),
    ):
        assert settles(lambda: len(found) == BATCH, 30.0)


def _holding(held: object) -> Callable[[Any], Any]:
    return lambda sample: (held, sample)


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        (OnRay(_reversed, options={"num_cpu": 1}), "num_cpu"),
        (OnRay(_holding(threading.Lock())), "a copy can be made: cannot pickle '_thread.lock' object$"),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_before_a_record_is_read(
    hosts: Hosts, numbers: str, transform: OnRay, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        _loader(numbers, transform)


def test_a_loader_whose_ray_was_shut_down_starts_no_other(hosts: Hosts, numbers: str) -> None:
    for again in (False, True):
        with _loader(numbers, OnRay(_slow, records=4), recovery=Recovery(on_error="skip")) as loader:
            _values(loader, batches=1)
            ray.shutdown()
            if again:
                ray.init(hosts.address, log_to_driver=False)
            with pytest.raises(ClusterError, match=r"ray\.shutdown\(\) was called"):
                _values(loader)
        assert ray.is_initialized() == again


def _other_process(home: Path, program: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program, with Ray's folders and the user's below this one."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    own |= {"HOME": str(home), "RAY_TMPDIR": str(home), **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program], env=own, stdin=pipe, stdout=pipe, text=True)


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: names of sockets are at most 107 bytes long."""
    with tempfile.TemporaryDirectory(prefix="e", ignore_cleanup_errors=True) as folder:
        Path(folder, "ray").mkdir()
        yield Path(folder)


_CONNECTS = """
import os
from emlio.ray import OnRay, RayFunction
from emlio.errors import ClusterError
try:
    assert RayFunction(OnRay(int)).apply(["3"], bool) == [3]
    import ray
    print(ray.get_runtime_context().gcs_address)
    ray.shutdown()
except ClusterError as error:
    print(error)
print(sorted(name for name in os.environ if name.startswith("RAY_AUTH")))
"""


def _connects(home: Path, **environment: str) -> list[str]:
    """Return the address that a process connects to, or its error; and the variables about tokens that it has then."""
    with _other_process(home, _CONNECTS, **environment) as process:
        return process.communicate(timeout=120)[0].splitlines()


def test_a_cluster_of_ray_start_is_used_but_not_that_of_another_process(hosts: Hosts, home: Path) -> None:
    begun_by_ray_start = home / "ray" / "ray_current_cluster"
    begun_by_ray_start.write_text(hosts.address)
    assert _connects(home) == [hosts.address, "[]"]
    begun_by_ray_start.write_text("127.0.0.1:1")  # that of a cluster that was killed
    address, names = _connects(home)
    assert re.fullmatch(r"[\d.]+:\d+", address)
    assert address != hosts.address
    assert names == "[]"
    assert not (home / ".ray").exists()


_SERVES = """
import ray
ray.init("local", include_dashboard=False, num_cpus=1)
print(ray.get_runtime_context().gcs_address, flush=True)
input()
"""


@pytest.mark.slow
def test_a_token_is_shown_where_it_is_asked_for(home: Path) -> None:
    token = "7" * 64
    with _other_process(home, _SERVES, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token) as cluster:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        assert "InvalidAuthToken" in _connects(home, RAY_ADDRESS=address)[0]
        (home / ".ray").mkdir()
        (home / ".ray" / "auth_token").write_text(token)
        assert _connects(home, RAY_ADDRESS=address)[0] == address
        cluster.communicate("\n", timeout=60)


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
