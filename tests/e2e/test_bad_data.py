"""Shards that are damaged, or change, under a running daemon.

Covers: flipped bits by each policy, truncation, replacement and growth in the middle of an epoch and before a session, the
daemon and its other datasets going on. Does not cover: what is refused at opening (test_bad_commands).
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.errors import CorruptRecordError, DatasetError, RefusedError
from emlio_testing.datasets import make_dataset, write_tfrecord
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess, settles

RECORDS = 60
SIZE = 200
FRAME = SIZE + 16
SMALL_MEMORY = ("--message-size", "16KiB", "--memory", "64KiB", "--high-water-mark", "1")


def flip(path: Path, offset: int) -> None:
    """Turn one bit and leave the file's times as the index knows them: a disk does not tell either."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 1,)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, int]:
    """A dataset of two shards whose record 37, the seventh of the second one, has a bit turned in its data."""
    directory = tmp_path / "damaged"
    make_dataset(directory, records=RECORDS, shards=2, payload=SIZE)
    flip(directory / "train-00001-of-00002.tfrecord", 7 * FRAME + 12 + 100)
    return directory, 37


def load(daemon: DaemonProcess, name: str, **options: object) -> EmlioLoader:
    arguments: dict[str, object] = {
        "batch_size": 10, "raw": True, "ids": True, "to": "numpy", "timeout": "10s", "shuffle": False, **options
    }  # fmt: skip
    return EmlioLoader(daemon.address(name), **loader_arguments(**arguments))


def ids_of(loader: EmlioLoader) -> list[list[int]]:
    return [[int.from_bytes(record[:8], "little") for record in batch["record"]] for batch in loader]


def test_a_flipped_bit_in_data_is_an_error_that_names_shard_and_record(
    damaged: tuple[Path, int], tmp_path: Path
) -> None:
    with DaemonProcess({"x": damaged[0]}, folder=tmp_path) as daemon, load(daemon, "x") as loader:
        batches = iter(loader)
        for number in range(3):
            assert int.from_bytes(next(batches)["record"][0][:8], "little") == 10 * number
        with pytest.raises(
            CorruptRecordError, match=r"record 7 of shard train-00001-of-00002\.tfrecord at byte 1512: .*CRC32C"
        ) as got:
            next(batches)
        assert (got.value.shard, got.value.record) == ("train-00001-of-00002.tfrecord", 7)
        assert 'on_error="skip"' in str(got.value)
        assert daemon.running


def test_skipped_it_is_missing_from_its_batch_and_counted(damaged: tuple[Path, int], tmp_path: Path) -> None:
    directory, bad = damaged
    with DaemonProcess({"x": directory}, folder=tmp_path) as daemon, load(daemon, "x", on_error="skip") as loader:
        seen = ids_of(loader)
        assert [len(batch) for batch in seen] == [10, 10, 10, 9, 10, 10]
        assert [record for batch in seen for record in batch] == [record for record in range(RECORDS) if record != bad]
        stats = loader.stats()
        assert (stats.skipped_records, stats.replaced_records) == (1, 0)
        assert stats.bad_records >= 1  # those of the next epoch may be here already


def test_replaced_it_leaves_the_batch_as_long_as_planned_and_is_counted(
    damaged: tuple[Path, int], tmp_path: Path
) -> None:
    directory, bad = damaged
    with DaemonProcess({"x": directory}, folder=tmp_path) as daemon, load(daemon, "x", on_error="replace") as loader:
        batches = list(loader)
        seen = [[int.from_bytes(record[:8], "little") for record in batch["record"]] for batch in batches]
        assert [len(batch) for batch in seen] == [10] * 6
        assert bad not in seen[3]
        assert seen[3][7] in set(range(30, 40)) - {bad}
        assert batches[3]["__id__"].tolist() == seen[3], "the id is that of the record handed out"
        stats = loader.stats()
        assert (stats.skipped_records, stats.replaced_records) == (0, 1)
        assert stats.bad_records >= 1


def test_a_batch_without_one_good_record_is_an_error_whatever_the_policy(
    damaged: tuple[Path, int], tmp_path: Path
) -> None:
    directory, _ = damaged
    with (
        DaemonProcess({"x": directory}, folder=tmp_path) as daemon,
        load(daemon, "x", batch_size=1, on_error="skip") as loader,
        pytest.raises(CorruptRecordError, match="the only record of the batch is bad") as got,
    ):
        ids_of(loader)
    assert 'on_error="skip"' not in str(got.value), "that is what was asked for"


def test_unverified_it_is_handed_out_as_it_lies(damaged: tuple[Path, int], tmp_path: Path) -> None:
    directory, _ = damaged
    with DaemonProcess({"x": directory}, folder=tmp_path) as daemon, load(daemon, "x", verify="none") as loader:
        assert [record for batch in ids_of(loader) for record in batch] == list(range(RECORDS))


def test_a_flipped_bit_in_a_length_is_named_when_the_file_is_seen_to_be_written_again(tmp_path: Path) -> None:
    directory = tmp_path / "set"
    make_dataset(directory, records=RECORDS, shards=2, payload=SIZE)
    with DaemonProcess({"x": directory}, folder=tmp_path) as daemon:
        flip(directory / "train-00000-of-00002.tfrecord", 4 * FRAME)
        with pytest.raises(RefusedError, match="record 4 at offset 864: the masked CRC32C of the length 201"):
            load(daemon, "x")


# ---- files that change under the daemon ---------------------------------------------------------------------------------

CHANGES = ("truncated", "appended", "rewritten", "removed")


def check_all(batches: Iterator[dict[str, Any]]) -> None:
    """Take all that comes: nothing wrong may be handed out before the error."""
    for batch in batches:
        for record, number in zip(batch["record"], batch["__id__"].tolist(), strict=True):
            assert int.from_bytes(record[:8], "little") == number


def change(shard: Path, how: str) -> None:
    if how == "truncated":
        os.truncate(shard, shard.stat().st_size // 2)
    elif how == "appended":
        with shard.open("ab") as file:
            file.write(b"more")
    elif how == "rewritten":
        other = shard.with_suffix(".new")
        write_tfrecord(other, [bytes(SIZE)] * (RECORDS // 2))
        other.replace(shard)
    else:
        shard.unlink()


@pytest.mark.parametrize("how", CHANGES)
def test_a_shard_changed_before_a_session_is_refused_and_the_other_dataset_is_served(
    tmp_path: Path, small: Path, how: str
) -> None:
    directory = tmp_path / "set"
    make_dataset(directory, records=RECORDS, shards=2, payload=SIZE)
    shard = directory / "train-00001-of-00002.tfrecord"
    with DaemonProcess({"x": directory, "small": small}, folder=tmp_path) as daemon:
        with load(daemon, "x") as loader:
            assert sum(map(len, ids_of(loader))) == RECORDS
        change(shard, how)
        refused, met = list[RefusedError](), list[DatasetError]()

        def is_refused() -> bool:
            """Ranks that come within a second hear what the last look found; what has changed since is noticed by reading."""
            try:
                load(daemon, "x").close()
            except RefusedError as error:
                refused.append(error)
            except DatasetError as error:
                met.append(error)
            return bool(refused)

        assert settles(is_refused, 20)
        assert all(str(shard) in str(error) for error in met), "a rank has its first records sent before it asks"
        assert str(shard) in str(refused[0])
        assert refused[0].code == "dataset-changed"
        said = (
            "a shard must not be removed"
            if how == "removed"
            else "(a shard must not change|changed while it was served)"
        )
        assert re.search(said, str(refused[0]))
        with load(daemon, "small") as loader:
            assert sum(map(len, ids_of(loader))) == 500
        assert "Traceback" not in daemon.log


@pytest.mark.parametrize("how", CHANGES)
def test_a_shard_changed_in_the_middle_of_an_epoch_ends_that_stream_with_its_name_and_nothing_else(
    tmp_path: Path, how: str
) -> None:
    records, size = 4000, 4000
    for name in ("x", "y"):
        make_dataset(tmp_path / name, records=records, shards=2, payload=size)
    shard = tmp_path / "x" / "train-00001-of-00002.tfrecord"
    with (
        DaemonProcess({"x": tmp_path / "x", "y": tmp_path / "y"}, *SMALL_MEMORY, folder=tmp_path) as daemon,
        load(daemon, "x", shuffle=True, prefetch="1MiB", batch_size=20) as hurt,
        load(daemon, "y", shuffle=True, prefetch="1MiB", batch_size=20) as other,
    ):
        hurt_batches, other_batches = iter(hurt), iter(other)
        next(hurt_batches)
        next(other_batches)
        change(shard, how)

        def go_on() -> None:
            """Files are looked at five times a second: what is left of a small epoch may be through by then, and is right."""
            check_all(hurt_batches)
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                check_all(iter(hurt))

        with pytest.raises(DatasetError, match=re.escape(str(shard))) as got:
            go_on()
        assert daemon.peer in str(got.value)
        assert sum(len(batch["record"]) for batch in other_batches) == records - 20
        assert daemon.running
        assert str(shard) in daemon.log, "the log of the storage node names it too"
        assert "Traceback" not in daemon.log
