"""Datasets of emlio.Writer: what a loader reads of them, going on after errors, arguments."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader, Writer
from emlio.cli import main as command
from emlio.errors import ClosedError, ConfigError, DatasetError
from emlio.example import encode_example
from emlio.formats.tfrecord.mapping import read_mapping
from emlio.index.opening import open_dataset
from emlio.prepare.targets.target import sole_writer
from emlio_testing.datasets import write_tfrecord
from emlio_testing.written_datasets import RECORDS, files_of, fill, ids, interrupt, numbered


def test_every_kind_of_value_arrives_at_a_loader(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    rows: list[dict[str, Any]] = [
        {
            "bytes": draw.bytes(number * 37),
            "text": f"Größe {number}",
            "flag": bool(number % 2),
            "whole": int(draw.integers(-(2**63), 2**63)),
            "float": float(np.float32(draw.normal())),
            "matrix": draw.normal(size=(3, number % 4)),
            "tokens": draw.integers(0, 1000, number % 5).astype(np.int32),
            "box": draw.normal(size=4).astype(np.float32),
            "ragged": draw.normal(size=number % 3).astype(np.float32).tolist(),
            "names": [f"n{one}" for one in range(number % 3)],
        }
        for number in range(40)
    ]
    schema = {
        "bytes": "bytes",
        "text": "str",
        "flag": "int64",
        "whole": "int64",
        "float": "float32",
        "matrix": "array",
        "tokens": "int64",
        "box": "float32",
        "ragged": "float32",
        "names": "str",
    }
    with Writer(tmp_path / "data", shard_size="5kB", schema=schema, verify=True) as writer:
        for row in rows:
            writer.write(row)
    found: list[dict[str, Any]] = []
    with EmlioLoader(str(tmp_path / "data"), batch_size=8, epochs=1, to="numpy", shuffle=False) as loader:
        for batch in loader:
            found += [{name: column[place] for name, column in batch.items()} for place in range(8)]
    assert len(found) == len(rows)
    for row, got in zip(rows, found, strict=True):
        assert bytes(got["bytes"]) == row["bytes"]
        assert bytes(got["text"]).decode() == row["text"]
        assert (int(got["flag"]), int(got["whole"]), float(got["float"])) == (row["flag"], row["whole"], row["float"])
        assert np.array_equal(got["matrix"], row["matrix"])
        assert got["matrix"].dtype == row["matrix"].dtype
        assert np.array_equal(got["tokens"], row["tokens"])
        assert np.array_equal(got["box"], row["box"])
        assert np.asarray(got["ragged"]).tolist() == row["ragged"]
        assert [bytes(name).decode() for name in _listed(got["names"])] == row["names"]


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, memoryview) else list(value)


def test_its_files_are_those_that_convert_makes(tmp_path: Path) -> None:
    records = [encode_example(numbered(number) | {"image/class/label": number % 3}) for number in range(RECORDS)]
    write_tfrecord(tmp_path / "in.tfrecord", records)
    assert (
        command(
            ["convert", str(tmp_path / "in.tfrecord"), str(tmp_path / "converted"), "--no-shuffle", "--shards", "1"]
        )
        == 0
    )
    with Writer(tmp_path / "written") as writer:
        for number in range(RECORDS):
            writer.write(numbered(number) | {"image/class/label": number % 3})
    with Writer(tmp_path / "raw") as writer:
        for record in records:
            writer.write(record)
    converted, written, raw = (files_of(tmp_path / name) for name in ("converted", "written", "raw"))
    for files in (converted, written, raw):
        del files["prepared.json"]
    assert written == converted
    assert raw == converted
    assert read_mapping(tmp_path / "raw" / "mapping_shard_00000.json").label_counts == {"0": 20, "1": 20, "2": 20}


def test_shards_are_as_large_as_they_may_be_and_a_large_record_has_its_own(tmp_path: Path) -> None:
    sizes = [100, 900, 100, 5000, 10, 2000, 1900]
    with Writer(tmp_path, shard_size=2048) as writer:
        for size in sizes:
            writer.write(bytes(size))
    with open_dataset("data", tmp_path) as dataset:
        found = [np.diff(shard.offsets).tolist() for shard in dataset.shards]
    assert [[size - 16 for size in shard] for shard in found] == [[100, 900, 100], [5000], [10, 2000], [1900]]


def test_an_exception_keeps_finished_shards_and_the_next_writer_continues(tmp_path: Path) -> None:
    fill(tmp_path / "whole")
    out = tmp_path / "data"
    kept = interrupt(out, 33)
    assert 0 < kept < 33
    assert all(name.startswith(".") for name in os.listdir(out))
    again = interrupt(out, 50)
    assert kept < again < 50
    with (
        pytest.raises(ConfigError, match=rf"holds {again} records of an earlier run. Skip as many"),
        Writer(out) as writer,
    ):
        writer.write(numbered(0))
    fill(out)
    assert files_of(out) == files_of(tmp_path / "whole")
    assert ids(out) == list(range(RECORDS))


def test_a_record_that_is_refused_does_no_harm(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.write(numbered(0))
        for wrong in ({"id": 1}, {"id": "one", "data": b""}, b"raw", None):
            with pytest.raises(ConfigError, match=r"^record 1"):
                writer.write(wrong)  # type: ignore[arg-type]
        writer.write(numbered(1))
    assert ids(tmp_path) == [0, 1]


def test_an_error_that_the_caller_swallows_is_not_a_finished_dataset(tmp_path: Path) -> None:
    out = tmp_path / "data"
    stopped = pytest.raises(ClosedError, match="stopped after an error; a new one continues")
    with stopped, Writer(out, shard_size=1024) as writer:
        writer.write(numbered(0))
        out.rename(tmp_path / "away")
        with pytest.raises(DatasetError):
            writer.write(numbered(1))
    with pytest.raises(ClosedError, match="stopped after an error"):
        writer.close()


def test_threads_may_share_a_writer(tmp_path: Path) -> None:
    with Writer(tmp_path, shard_size="5kB") as writer:

        def work(first: int) -> None:
            for number in range(first, 200, 4):
                writer.write({"id": number, "data": bytes(100)})

        threads = [Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(ids(tmp_path)) == list(range(200))


def test_a_closed_writer_and_one_of_another_process_take_nothing(tmp_path: Path) -> None:
    with Writer(tmp_path / "data") as writer:
        writer.write(b"record")
        program = os.fork()
        if program == 0:
            try:
                writer.write(b"child")
            except ClosedError:
                writer.close()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(program, 0)[1] == 0
        assert not (tmp_path / "data" / "prepared.json").exists()
    writer.close()
    with pytest.raises(ClosedError, match="the writer is closed"):
        writer.write(b"more")


def test_a_process_that_was_forked_meanwhile_keeps_no_lock(tmp_path: Path) -> None:
    ended, end = os.pipe()
    with Writer(tmp_path / "data") as writer:
        writer.write(b"record")
        program = os.fork()
        if program == 0:
            os.close(end)
            os.read(ended, 1)
            os._exit(0)
    try:
        with sole_writer(tmp_path / "data"):  # as emlio convert does
            pass
    finally:
        os.close(end)
        os.close(ended)
        assert os.waitpid(program, 0)[1] == 0


def test_a_dataset_without_records_is_an_error_and_may_be_filled_later(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must have at least one record"), Writer(tmp_path):
        pass
    fill(tmp_path)
    assert ids(tmp_path) == list(range(RECORDS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"part": (3, 3)}, r"part must be \(NUMBER, PARTS\)"),
        ({"part": 3}, r"such as \(3, 8\), got 3"),
        ({"part": (-1, 2)}, "part must be"),
        ({"part": (0.5, 2)}, r"such as \(3, 8\), got \(0.5, 2\)"),
        ({"part": "12"}, r"such as \(3, 8\), got '12'"),
        ({"overwrite": "no"}, "overwrite must be True or False, got 'no'"),
        ({"append_to": "s3://bucket/data"}, "append_to must be a folder of this host"),
        ({"append_to": 3}, "append_to must be the path of a folder, got 3"),
        ({"labels": "cat"}, "labels must be a list of names"),
        ({"labels": {"0": "cat"}}, "labels: a number must be a whole number"),
        ({"labels": ["cat", "two\nlines"]}, "labels: a name must be a line of text"),
        ({"shard_size": "12 apples"}, "shard_size must be a size"),
        ({"shard_size": 10}, "shard_size must be at least 1024"),
    ],
)
def test_wrong_arguments_make_nothing(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Writer(tmp_path / "data", **options)
    for folder in ("s3://bucket/data", "emlio://store/data", "file:///data"):
        with pytest.raises(ConfigError, match="must be a folder of this host"):
            Writer(folder)
    for wrong in (None, 5, b"data", ""):
        with pytest.raises(ConfigError, match="folder must be the path of a folder"):
            Writer(wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "data").exists()


_LITTLE_ROOM = """
import resource, sys
import emlio
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
with emlio.Writer(sys.argv[1], shard_size="400kB") as writer:
    for number in range(10):
        writer.write({"data": bytes(15_000)})
    try:
        for number in range(200):
            writer.write({"data": bytes(15_000)})
    except emlio.errors.DatasetError as error:
        print(error)
        raise SystemExit(3)
"""


def test_a_full_disk_is_an_error_with_the_bytes_and_a_new_writer_continues(tmp_path: Path) -> None:
    program = _LITTLE_ROOM.replace("import emlio\n", "import emlio, emlio.errors\n")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "cannot be written: File too large. It needs about 400000 bytes" in done.stdout
    assert "Free some space and run the same command again to continue" in done.stdout
    assert not [name for name in os.listdir(tmp_path / "data") if name.endswith((".tfrecord", ".tmp"))]
    fill(tmp_path / "data")
    assert ids(tmp_path / "data") == list(range(RECORDS))


def test_a_damaged_shard_is_found_by_verify_and_written_again(tmp_path: Path) -> None:
    kept = interrupt(tmp_path, 40)
    shard = sorted(tmp_path.glob(".part-*.tfrecord"))[1]
    shard.write_bytes(shard.read_bytes()[:-5])
    with Writer(tmp_path, shard_size="5kB") as writer:
        assert 0 < writer.written < kept  # what follows the broken one is dropped, too
        for number in range(writer.written, RECORDS):
            writer.write(numbered(number))
    assert ids(tmp_path) == list(range(RECORDS))


def test_memory_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    program = """
import resource, sys
import emlio
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
record = bytes(100_000)
with emlio.Writer(sys.argv[1], shard_size="64MB") as writer:
    for number in range(50):
        writer.write({"data": record})
    before = peak()
    for number in range(1000):
        writer.write({"data": record})
print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) < 4000  # KiB, of 100 MB


def test_a_writer_that_is_dropped_says_so_and_lets_the_next_one_continue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(tmp_path, shard_size=1024)
    for number in range(3):
        writer.write(numbered(number))
    with pytest.raises(ConfigError, match="another writer of this process writes part 0 of 1"):
        Writer(tmp_path)
    del writer
    gc.collect()
    assert "the writer was not closed, so its dataset is not finished" in caplog.text
    with Writer(tmp_path, shard_size=1024) as writer:
        for number in range(writer.written, 3):
            writer.write(numbered(number))
    assert ids(tmp_path) == [0, 1, 2]


def test_a_run_with_other_columns_than_the_interrupted_one_is_refused_at_once(tmp_path: Path) -> None:
    schema = {"id": "int64", "data": "bytes"}
    assert interrupt(tmp_path, 40) > 0
    with pytest.raises(
        ConfigError, match=r"schema must be that of the records of an earlier run, \{'data': 'bytes', 'id"
    ):
        Writer(tmp_path, schema={"id": "str", "data": "bytes"})
    fill(tmp_path, schema=schema)
    assert ids(tmp_path) == list(range(RECORDS))
