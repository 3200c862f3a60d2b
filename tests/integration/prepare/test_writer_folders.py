"""Folders of emlio.Writer: parts, appending, replacing, what a daemon finds meanwhile."""

import os
import time
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest

from emlio import Writer
from emlio.cli import main as command
from emlio.errors import ConfigError, DatasetError, EmlioError, PlanError
from emlio.index.opening import open_dataset
from emlio.prepare.locks import locked
from emlio.prepare.targets.target import sole_writer
from emlio.prepare.writing.finish import go_on_finishing
from emlio.prepare.writing.part_files import LOCK, Finishing
from emlio_testing.datasets import write_tfrecord
from emlio_testing.written_datasets import RECORDS, files_of, fill, ids, interrupt, numbered


def test_a_complete_dataset_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    before = files_of(tmp_path / "data")
    with pytest.raises(ConfigError, match=r"holds a complete dataset.*overwrite=True.*append_to=.*emlio publish"):
        Writer(tmp_path / "data")
    assert files_of(tmp_path / "data") == before
    fill(tmp_path / "data", 20, 30, overwrite=True)
    assert ids(tmp_path / "data") == list(range(20, 30))


def test_overwrite_replaces_converted_datasets_and_refuses_foreign_files(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "in.tfrecord", [b"record"] * 9)
    assert command(["convert", str(tmp_path / "in.tfrecord"), str(tmp_path / "data"), "--shards", "3"]) == 0
    (tmp_path / "data" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds 'notes.txt'. Choose another folder"):
        Writer(tmp_path / "data", overwrite=True)
    (tmp_path / "data" / "notes.txt").unlink()
    fill(tmp_path / "data", overwrite=True)
    assert ids(tmp_path / "data") == list(range(RECORDS))
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "shard-00000-of-00001.tfrecord").write_bytes(b"")  # a name of ours, but nothing says that it is ours
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="must be empty"):
            Writer(foreign, overwrite=overwrite)
    assert command(["convert", str(tmp_path / "in.tfrecord"), str(tmp_path / "data"), "--force"]) == 2


def test_overwrite_drops_an_unfinished_dataset(tmp_path: Path) -> None:
    interrupt(tmp_path / "data", 40)
    fill(tmp_path / "data", 50, 60, overwrite=True)
    assert ids(tmp_path / "data") == list(range(50, 60))


def test_parts_in_any_order_make_one_dataset_in_their_own_order(tmp_path: Path) -> None:
    for part in (2, 0, 1):
        assert not (tmp_path / "prepared.json").exists()
        fill(tmp_path, part * 20, part * 20 + 20, part=(part, 3))
    assert ids(tmp_path) == list(range(RECORDS))


def test_each_part_continues_on_its_own_and_a_part_may_be_empty(tmp_path: Path) -> None:
    fill(tmp_path, 0, 0, part=(0, 3))
    assert interrupt(tmp_path, 33, part=(2, 3)) > 0
    fill(tmp_path, 0, 20, part=(1, 3))
    fill(tmp_path, 0, 20, part=(1, 3))  # a part that is complete may be run again
    assert not (tmp_path / "prepared.json").exists()
    fill(tmp_path, 0, 40, part=(2, 3))
    assert ids(tmp_path) == [*range(20), *range(40)]


def test_a_part_belongs_to_one_writer_and_the_number_of_parts_stays(tmp_path: Path) -> None:
    with Writer(tmp_path, part=(0, 2), shard_size=1024) as writer:
        with pytest.raises(ConfigError, match="another writer of this process writes part 0 of 2"):
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
    fill(tmp_path, overwrite=True)
    assert ids(tmp_path) == list(range(RECORDS))


def test_parts_that_begin_at_the_same_moment_all_write(tmp_path: Path) -> None:
    parts = 4
    errors: list[EmlioError] = []

    def work(part: int) -> None:
        try:
            fill(tmp_path, part * 5, part * 5 + 5, part=(part, parts))
        except EmlioError as error:
            errors.append(error)

    threads = [Thread(target=work, args=(part,)) for part in range(parts)]
    # None of them can look into the folder before all are there.
    with locked(tmp_path / LOCK):
        for thread in threads:
            thread.start()
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    assert errors == []
    assert ids(tmp_path) == list(range(20))


def test_finishing_leaves_the_lock_to_who_holds_it(tmp_path: Path) -> None:
    fill(tmp_path)
    with locked(tmp_path / LOCK):
        go_on_finishing(tmp_path, Finishing(records=(RECORDS,)))
        # Without the file, a writer that begins now would not wait, and write into what is just being finished.
        assert (tmp_path / LOCK).exists()
    assert not (tmp_path / LOCK).exists()


def test_parts_with_other_columns_are_refused_and_can_be_written_again(tmp_path: Path) -> None:
    fill(tmp_path, 0, 20, part=(0, 2))
    wanted = pytest.raises(ConfigError, match=r"all parts must have the same columns, part 0 has .*, part 1 has")
    with wanted, Writer(tmp_path, part=(1, 2)) as writer:
        writer.write({"id": "one"})
    fill(tmp_path, 20, 40, part=(1, 2), overwrite=True)
    assert ids(tmp_path) == list(range(40))


def test_appending_links_the_old_shards_and_leaves_the_old_folder_as_it_is(tmp_path: Path) -> None:
    old, new = tmp_path / "one", tmp_path / "two"
    fill(old)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()}
    with (
        pytest.raises(
            ConfigError, match=r"record 0: must have the features .*'data': bytes there, no such feature here"
        ),
        Writer(new, append_to=old) as writer,
    ):
        writer.write({"id": 1})
    assert interrupt(new, 20, begin=RECORDS, append_to=old) > 0
    with pytest.raises(ConfigError, match=r"in 1 part after .*, not in 1 part. "):
        Writer(new)
    with Writer(new, append_to=old, shard_size="5kB") as writer:
        for number in range(RECORDS + writer.written, 90):
            writer.write(numbered(number))
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()} == before
    with open_dataset("data", old) as first:
        shards = len(first.shards)
    assert all(path.stat().st_nlink == 2 for path in old.glob("*.tfrecord"))
    assert sum(path.stat().st_nlink == 2 for path in new.glob("*.tfrecord")) == shards
    assert ids(old) == list(range(RECORDS))
    assert ids(new) == list(range(90))
    fill(tmp_path / "three", 90, 95, append_to=new)
    assert ids(tmp_path / "three")[-5:] == list(range(90, 95))


def test_only_a_whole_described_dataset_can_be_appended_to(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    write_tfrecord(plain / "a.tfrecord", [b"record"])
    with pytest.raises(ConfigError, match=r"must have a mapping for each shard. Write them: emlio index --mapping"):
        Writer(tmp_path / "new", append_to=plain)
    fill(tmp_path / "half")
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
    interrupt(tmp_path / "data", 50)
    with pytest.raises(DatasetError):
        open_dataset("data", tmp_path / "data", tmp_path / "cache").close()
    fill(tmp_path / "whole")
    # Closing gives names in this order: all mappings, then the shards, then the recipe.
    names = sorted(files_of(tmp_path / "whole"))
    shards = [name for name in names if name.endswith(".tfrecord")]
    steps = [name for name in names if name.startswith("mapping")] + shards
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
                ids(out)
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


def test_a_folder_in_which_a_writer_has_not_finished_is_named_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(tmp_path / "data", 40)
    told = "an emlio.Writer has not finished this dataset.*make it again for the same folder"
    with pytest.raises(DatasetError, match=told):
        open_dataset("data", tmp_path / "data")
    with pytest.raises(DatasetError, match=told):
        Writer(tmp_path / "next", append_to=tmp_path / "data")
    for words in (["inspect", str(tmp_path / "data")], ["convert", str(tmp_path / "data"), str(tmp_path / "out")]):
        assert command(words) != 0
        assert "has not finished this dataset" in capsys.readouterr().err
    fill(tmp_path / "data")
    assert ids(tmp_path / "data") == list(range(RECORDS))
