"""Datasets of emlio.Writer: what a loader and a daemon read of them, going on, appending, replacing."""

import os
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import emlio
from emlio import EmlioLoader, Writer
from emlio.cli import main as command
from emlio.errors import ClosedError, ConfigError, DatasetError, PlanError
from emlio.example import encode_example
from emlio.prepare.targets.target import sole_writer
from emlio.shards.opening.choice import open_dataset
from emlio.shards.tfrecord.mapping import read_mapping
from emlio_testing.datasets import write_tfrecord

_RECORDS = 60


def _record(number: int) -> dict[str, Any]:
    return {"id": number, "data": bytes([number]) * 500}


def _fill(folder: Path, begin: int = 0, end: int = _RECORDS, **options: Any) -> None:
    with Writer(folder, **{"shard_size": "5kB", **options}) as writer:
        for number in range(begin + writer.written, end):
            writer.write(_record(number))


def _ids(folder: Path) -> list[int]:
    with EmlioLoader(str(folder), batch_size=7, epochs=1, to="numpy", shuffle=False, fields=["id"]) as loader:
        return [number for batch in loader for number in batch["id"].ravel().tolist()]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _interrupted(folder: Path, records: int, begin: int = 0, **options: Any) -> int:
    """Write some records of an unfinished dataset; return how many are in finished shards."""
    with suppress(KeyboardInterrupt), Writer(folder, **{"shard_size": "5kB", **options}) as writer:
        for number in range(writer.written, records):
            writer.write(_record(begin + number))
        raise KeyboardInterrupt
    return writer.written


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
        matrix = np.frombuffer(got["matrix/data"], bytes(got["matrix/dtype"]).decode())
        assert np.array_equal(matrix.reshape(got["matrix/shape"]), row["matrix"])
        assert np.array_equal(got["tokens"], row["tokens"])
        assert np.array_equal(got["box"], row["box"])
        assert np.asarray(got["ragged"]).tolist() == row["ragged"]
        assert [bytes(name).decode() for name in _listed(got["names"])] == row["names"]


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, memoryview) else list(value)


def test_its_files_are_those_that_convert_makes(tmp_path: Path) -> None:
    records = [encode_example(_record(number) | {"image/class/label": number % 3}) for number in range(_RECORDS)]
    write_tfrecord(tmp_path / "in.tfrecord", records)
    assert (
        command(
            ["convert", str(tmp_path / "in.tfrecord"), str(tmp_path / "converted"), "--no-shuffle", "--shards", "1"]
        )
        == 0
    )
    with Writer(tmp_path / "written") as writer:
        for number in range(_RECORDS):
            writer.write(_record(number) | {"image/class/label": number % 3})
    with Writer(tmp_path / "raw") as writer:
        for record in records:
            writer.write(record)
    converted, written, raw = (_files(tmp_path / name) for name in ("converted", "written", "raw"))
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
        found = [np.diff(shard.offsets).tolist() for shard in dataset.tfrecord_shards]
    assert [[size - 16 for size in shard] for shard in found] == [[100, 900, 100], [5000], [10, 2000], [1900]]


def test_an_exception_keeps_finished_shards_and_the_next_writer_continues(tmp_path: Path) -> None:
    _fill(tmp_path / "whole")
    out = tmp_path / "data"
    kept = _interrupted(out, 33)
    assert 0 < kept < 33
    assert all(name.startswith(".") for name in os.listdir(out))
    again = _interrupted(out, 50)
    assert kept < again < 50
    with (
        pytest.raises(ConfigError, match=rf"holds {again} records of an earlier run. Skip as many"),
        Writer(out) as writer,
    ):
        writer.write(_record(0))
    _fill(out)
    assert _files(out) == _files(tmp_path / "whole")
    assert _ids(out) == list(range(_RECORDS))


def test_a_record_that_is_refused_does_no_harm(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.write(_record(0))
        for wrong in ({"id": 1}, {"id": "one", "data": b""}, b"raw", None):
            with pytest.raises(ConfigError, match=r"^record 1"):
                writer.write(wrong)  # type: ignore[arg-type]
        writer.write(_record(1))
    assert _ids(tmp_path) == [0, 1]


def test_a_complete_dataset_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    _fill(tmp_path / "data")
    before = _files(tmp_path / "data")
    with pytest.raises(ConfigError, match=r"holds a complete dataset.*overwrite=True.*append_to=.*emlio publish"):
        Writer(tmp_path / "data")
    assert _files(tmp_path / "data") == before
    _fill(tmp_path / "data", 20, 30, overwrite=True)
    assert _ids(tmp_path / "data") == list(range(20, 30))


def test_overwrite_replaces_converted_datasets_and_refuses_foreign_files(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "in.tfrecord", [b"record"] * 9)
    assert command(["convert", str(tmp_path / "in.tfrecord"), str(tmp_path / "data"), "--shards", "3"]) == 0
    (tmp_path / "data" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds 'notes.txt'. Choose another folder"):
        Writer(tmp_path / "data", overwrite=True)
    (tmp_path / "data" / "notes.txt").unlink()
    _fill(tmp_path / "data", overwrite=True)
    assert _ids(tmp_path / "data") == list(range(_RECORDS))
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "shard-00000-of-00001.tfrecord").write_bytes(b"")  # a name of ours, but nothing says that it is ours
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="must be empty"):
            Writer(foreign, overwrite=overwrite)
    assert command(["convert", str(tmp_path / "in.tfrecord"), str(tmp_path / "data"), "--force"]) == 2


def test_overwrite_drops_an_unfinished_dataset(tmp_path: Path) -> None:
    _interrupted(tmp_path / "data", 40)
    _fill(tmp_path / "data", 50, 60, overwrite=True)
    assert _ids(tmp_path / "data") == list(range(50, 60))


def test_parts_in_any_order_make_one_dataset_in_their_own_order(tmp_path: Path) -> None:
    for part in (2, 0, 1):
        assert not (tmp_path / "prepared.json").exists()
        _fill(tmp_path, part * 20, part * 20 + 20, part=(part, 3))
    assert _ids(tmp_path) == list(range(_RECORDS))


def test_each_part_continues_on_its_own_and_a_part_may_be_empty(tmp_path: Path) -> None:
    _fill(tmp_path, 0, 0, part=(0, 3))
    assert _interrupted(tmp_path, 33, part=(2, 3)) > 0
    _fill(tmp_path, 0, 20, part=(1, 3))
    _fill(tmp_path, 0, 20, part=(1, 3))  # a part that is complete may be run again
    assert not (tmp_path / "prepared.json").exists()
    _fill(tmp_path, 0, 40, part=(2, 3))
    assert _ids(tmp_path) == [*range(20), *range(40)]


def test_a_part_belongs_to_one_writer_and_the_number_of_parts_stays(tmp_path: Path) -> None:
    with Writer(tmp_path, part=(0, 2), shard_size=1024) as writer:
        with pytest.raises(ConfigError, match="another process writes part 0 of 2"):
            Writer(tmp_path, part=(0, 2))
        with pytest.raises(ConfigError, match="holds an unfinished dataset in 2 parts, not in 3 parts"):
            Writer(tmp_path, part=(1, 3))
        with pytest.raises(ConfigError, match="holds an unfinished dataset in 2 parts, not in 3 parts"):
            Writer(tmp_path, part=(1, 3), overwrite=True)  # the other part is being written
        with pytest.raises(ConfigError, match="another process is writing a dataset here"), sole_writer(tmp_path):
            pass
        writer.write(bytes(1000))
        writer.write(bytes(1000))
    with pytest.raises(ConfigError, match="Continue it with these arguments, or drop it with overwrite=True"):
        Writer(tmp_path)
    _fill(tmp_path, overwrite=True)
    assert _ids(tmp_path) == list(range(_RECORDS))


def test_parts_with_other_columns_are_refused_and_can_be_written_again(tmp_path: Path) -> None:
    _fill(tmp_path, 0, 20, part=(0, 2))
    wanted = pytest.raises(ConfigError, match=r"all parts must have the same columns, part 0 has .*, part 1 has")
    with wanted, Writer(tmp_path, part=(1, 2)) as writer:
        writer.write({"id": "one"})
    _fill(tmp_path, 20, 40, part=(1, 2), overwrite=True)
    assert _ids(tmp_path) == list(range(40))


def test_appending_links_the_old_shards_and_leaves_the_old_folder_as_it_is(tmp_path: Path) -> None:
    old, new = tmp_path / "one", tmp_path / "two"
    _fill(old)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()}
    with (
        pytest.raises(
            ConfigError, match=r"record 0: must have the features .*'data': bytes there, no such feature here"
        ),
        Writer(new, append_to=old) as writer,
    ):
        writer.write({"id": 1})
    assert _interrupted(new, 20, begin=_RECORDS, append_to=old) > 0
    with pytest.raises(ConfigError, match=r"in 1 part after .*, not in 1 part. "):
        Writer(new)
    with Writer(new, append_to=old, shard_size="5kB") as writer:
        for number in range(_RECORDS + writer.written, 90):
            writer.write(_record(number))
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()} == before
    with open_dataset("data", old) as first:
        shards = len(first.shards)
    assert all(path.stat().st_nlink == 2 for path in old.glob("*.tfrecord"))
    assert sum(path.stat().st_nlink == 2 for path in new.glob("*.tfrecord")) == shards
    assert _ids(old) == list(range(_RECORDS))
    assert _ids(new) == list(range(90))
    _fill(tmp_path / "three", 90, 95, append_to=new)
    assert _ids(tmp_path / "three")[-5:] == list(range(90, 95))


def test_only_a_whole_described_dataset_can_be_appended_to(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    write_tfrecord(plain / "a.tfrecord", [b"record"])
    with pytest.raises(ConfigError, match=r"must have a mapping for each shard. Write them: emlio index --mapping"):
        Writer(tmp_path / "new", append_to=plain)
    _fill(tmp_path / "half")
    next((tmp_path / "half").glob("shard-*.tfrecord")).unlink()
    with pytest.raises(ConfigError, match=r"append_to must be a whole dataset: .* lacks shard-0000"):
        Writer(tmp_path / "new", append_to=tmp_path / "half")
    with pytest.raises(ConfigError, match="must be another folder"):
        Writer(tmp_path / "half", append_to=tmp_path / "half")
    with pytest.raises(DatasetError, match="no such directory"):
        Writer(tmp_path / "new", append_to=tmp_path / "nothing")
    assert not (tmp_path / "new").exists()
    assert list(plain.iterdir()) == [plain / "a.tfrecord"]


def test_a_folder_that_is_opened_meanwhile_is_never_a_whole_dataset(tmp_path: Path) -> None:
    _interrupted(tmp_path / "data", 50)
    with pytest.raises(DatasetError):
        open_dataset("data", tmp_path / "data", tmp_path / "cache").close()
    _fill(tmp_path / "whole")
    # Closing gives names in this order: all mappings, then index and shard one by one, then the recipe.
    names = sorted(_files(tmp_path / "whole"))
    shards = [name for name in names if name.endswith(".tfrecord")]
    steps = [name for name in names if name.startswith("mapping")]
    steps += [name for shard in shards for name in (f"{shard}.index.npy", shard)]
    assert sorted([*steps, "prepared.json"]) == names
    out = tmp_path / "renamed"
    out.mkdir()
    missing: list[int] = []
    refusals: list[str] = []
    for step in steps:
        (out / step).write_bytes((tmp_path / "whole" / step).read_bytes())
        try:
            with open_dataset("data", out, tmp_path / "cache2") as dataset:
                missing.append(len(dataset.missing))
                assert len(dataset.missing) + len(dataset.shards) == len(shards)
        except DatasetError as error:
            refusals.append(str(error))
        if missing and missing[-1] == 1:
            with pytest.raises((DatasetError, PlanError), match=r"shard-0"):
                _ids(out)
    assert refusals
    assert all("has mappings, but all" in refusal for refusal in refusals)
    assert missing == sorted(missing, reverse=True)
    assert missing[-1] == 0
    assert all(before - after in (0, 1) for before, after in pairwise(missing))


def test_closing_names_the_files_in_that_order(tmp_path: Path) -> None:
    with Writer(tmp_path, shard_size=1024) as writer:
        for _ in range(5):
            writer.write(bytes(800))
        seen: list[set[str]] = []
        stop = False

        def watch() -> None:
            while not stop:
                seen.append({name for name in os.listdir(tmp_path) if not name.startswith(".")})

        thread = Thread(target=watch)
        thread.start()
    stop = True
    thread.join()
    for names in seen:
        if any(name.startswith("shard") for name in names):
            assert sum(name.startswith("mapping") for name in names) == 5
        if "prepared.json" in names:
            assert sum(name.endswith(".tfrecord") for name in names) == 5


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
    assert sorted(_ids(tmp_path)) == list(range(200))


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


def test_a_dataset_without_records_is_an_error_and_may_be_filled_later(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must have at least one record"), Writer(tmp_path):
        pass
    _fill(tmp_path)
    assert _ids(tmp_path) == list(range(_RECORDS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"part": (3, 3)}, "part must be a number from 0"),
        ({"part": 3}, r"such as \(3, 8\), got 3"),
        ({"part": (-1, 2)}, "part must be"),
        ({"shard_size": "12 apples"}, "shard_size must be a size"),
        ({"shard_size": 10}, "shard_size must be at least 1024"),
    ],
)
def test_wrong_arguments_make_nothing(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Writer(tmp_path / "data", **options)
    with pytest.raises(ConfigError, match="must be a folder of this host"):
        Writer("s3://bucket/data")
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
    _fill(tmp_path / "data")
    assert _ids(tmp_path / "data") == list(range(_RECORDS))


def test_a_damaged_shard_is_found_by_verify_and_written_again(tmp_path: Path) -> None:
    kept = _interrupted(tmp_path, 40)
    shard = sorted(tmp_path.glob(".part-*.tfrecord"))[1]
    shard.write_bytes(shard.read_bytes()[:-5])
    with Writer(tmp_path, shard_size="5kB") as writer:
        assert 0 < writer.written < kept  # what follows the broken one is dropped, too
        for number in range(writer.written, _RECORDS):
            writer.write(_record(number))
    assert _ids(tmp_path) == list(range(_RECORDS))


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


def test_the_public_name_is_the_class() -> None:
    assert emlio.Writer is Writer
