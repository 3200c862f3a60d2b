"""Conversions and indexes on a Ray cluster: the same as without, also where a host is killed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from emlio.cli import main
from emlio.errors import ConfigError, DatasetError
from emlio.prepare.convert import convert
from emlio.prepare.convert_options import ConvertOptions
from emlio.ray import RayHosts
from emlio_testing.datasets import make_dataset, write_tfrecord
from emlio_testing.processes import settles
from tests.e2e.on_ray.hosts import Hosts, beside

ray = pytest.importorskip("ray")


RECORDS, BATCH = 120, 8


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


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

    with beside(kill):
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
