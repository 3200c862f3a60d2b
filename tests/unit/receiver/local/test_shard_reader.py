"""Reading shards of this host by itself: what comes, how far ahead, errors in their place, positions, the end."""

import os
import select
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from emlio.clock import Clock, SystemClock
from emlio.errors import DatasetError, EmlioError
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading.message_planner import StreamPosition
from emlio.receiver.local.shard_reader import LocalShards
from emlio.receiver.machine.message import Message
from emlio.tfrecord import FRAME_BYTES, check_frames
from emlio.waker import Waker
from emlio.wire.data import ids_checksum
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles

_MIB = 1 << 20
_AHEAD_BYTES = 16 * _MIB
_FOR_EVER_S = 20
_CALM_LOOKS = 10


class _CountingClock:
    """The system's clock, which is asked once for each message that is read; from a certain time on it fails."""

    def __init__(self, failure: Exception | None = None, after: int = 0) -> None:
        self.messages = 0
        self._clock = SystemClock()
        self._failure = failure
        self._after = after

    def monotonic_ns(self) -> int:
        self.messages += 1
        if self._failure is not None and self.messages > self._after:
            raise self._failure
        return self._clock.monotonic_ns()

    def rests_after(self, messages: int) -> bool:
        """Whether reading came as far as that many messages, and to rest; how far it came then is in `messages`."""
        seen: list[int] = []

        def probe() -> bool:
            seen.append(self.messages)
            return len(seen) > _CALM_LOOKS and seen[-1] == seen[-1 - _CALM_LOOKS] >= messages

        return settles(probe, _FOR_EVER_S)


class _Reader:
    """What the receive thread does with shards of this host, as far as they are concerned."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.waker = Waker()
        try:
            self.shards = LocalShards(
                folder, self.waker, SystemClock() if clock is None else clock, window_bytes=8 * _MIB
            )
        except BaseException:
            self.waker.close()
            raise
        self.shards.owned = np.ones(len(self.shards.holding.rows), np.bool_)

    def wait(self) -> Message:
        """The next message, which is not taken."""
        while (message := self.shards.first()) is None:
            assert select.select([self.waker.fileno()], [], [], _FOR_EVER_S)[0], "nobody woke the receive thread"
            self.waker.rest()
        return message

    def take(self) -> Message:
        """The next message."""
        message = self.wait()
        self.shards.taken()
        return message


@contextmanager
def _reading(folder: Path, clock: Clock | None = None) -> Iterator[_Reader]:
    reader = _Reader(folder, clock)
    try:
        yield reader
    finally:
        reader.shards.close()
        reader.waker.close()


def _plan(folder: Path, shuffle: str = "global", batch_size: int = 8, world_size: int = 1) -> Plan:
    with open_dataset("numbers", folder) as dataset:
        spec = PlanSpec(shuffle=Shuffle.parse(shuffle), batch_size=batch_size, world_size=world_size)
        return Plan(Catalog(shards=dataset.entries), spec)


def _from(epoch: int, origin: int) -> StreamPosition:
    return StreamPosition(epoch=epoch, origin=origin, slot=0)


_START = _from(0, 0)


def _records(message: Message) -> list[bytes]:
    """A message's records, each checked."""
    run = check_frames(message.payload, message.sizes, verify=True)
    assert not run.faults
    return [bytes(message.payload[start:end]) for start, end in zip(run.starts, run.ends, strict=True)]


@pytest.mark.parametrize("shuffle", ["global", "block:8:4", "shard", "none"])
def test_the_records_of_a_rank_come_in_the_plans_order_epoch_after_epoch(tmp_path: Path, shuffle: str) -> None:
    made = make_dataset(tmp_path, records=50, shards=3)
    plan = _plan(tmp_path, shuffle, world_size=2)
    with _reading(tmp_path) as reader:
        reader.shards.open(plan, 1, _from(4, 0))
        for epoch in range(4, 8):
            ids = plan.epoch(epoch).ids(1, 0, plan.epoch(epoch).slots(1))
            came: list[bytes] = []
            while len(came) < len(ids):
                message = reader.take()
                header = message.header
                assert (header.epoch, header.slot) == (epoch, len(came))
                assert header.ids_crc == ids_checksum(ids[header.slot : header.slot + header.count])
                came += _records(message)
            assert came == [made[identity] for identity in ids.tolist()]


def test_only_the_shards_that_are_read_here_are_read(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=30, shards=3)
    plan = _plan(tmp_path, "none")
    with _reading(tmp_path) as reader:
        reader.shards.owned = np.array([False, True, False])
        reader.shards.open(plan, 0, _START)
        message = reader.take()
        assert (message.header.slot, message.header.count) == (10, 10)
        assert [int.from_bytes(record[:8], "little") for record in _records(message)] == list(range(10, 20))


def test_with_no_shard_to_read_here_nothing_comes(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=30, shards=3)
    with _reading(tmp_path) as reader:
        reader.shards.owned = np.zeros(3, np.bool_)
        reader.shards.open(_plan(tmp_path), 0, _START)
        assert reader.shards.first() is None
        reader.shards.owned = np.ones(3, np.bool_)
        reader.shards.open(_plan(tmp_path), 0, _START)
        assert sum(reader.take().header.count for _ in range(2)) == 60


def test_an_order_without_a_record_for_this_rank_is_no_end_of_the_thread(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=20, shards=2)
    plan = _plan(tmp_path, "none", batch_size=10, world_size=2)
    with _reading(tmp_path) as reader:
        reader.shards.owned = np.array([True, False])
        reader.shards.open(plan, 1, _START)
        assert select.select([reader.waker.fileno()], [], [], _FOR_EVER_S)[0]
        assert reader.shards.first() is None
        reader.shards.open(plan, 0, _START)
        assert reader.take().header.count == 10


@pytest.mark.parametrize(
    ("records", "size_bytes", "messages"),
    [
        pytest.param(8, _MIB - FRAME_BYTES, _AHEAD_BYTES // _MIB, id="messages as large as they are planned"),
        pytest.param(3, 5 * _MIB - FRAME_BYTES, 4, id="records larger than a message"),
        pytest.param(2, 20 * _MIB, 1, id="records larger than the bound"),
        pytest.param(1, 8, _AHEAD_BYTES // _MIB, id="a dataset of one small record"),
    ],
)
def test_reading_ahead_is_bounded_while_nobody_takes_and_goes_on_for_who_does(
    tmp_path: Path, records: int, size_bytes: int, messages: int
) -> None:
    made = make_dataset(tmp_path, records=records, shards=1, payload=size_bytes)
    clock = _CountingClock()
    with _reading(tmp_path, clock) as reader:
        reader.shards.open(_plan(tmp_path, "none"), 0, _START)
        assert clock.rests_after(messages)
        assert clock.messages == messages
        for number in range(3 * messages):
            assert _records(reader.take()) == [made[number % records]]
        assert clock.rests_after(4 * messages)
        assert clock.messages == 4 * messages


def test_a_position_drops_what_was_read_and_the_next_message_is_the_first_from_there(tmp_path: Path) -> None:
    made = make_dataset(tmp_path, records=60, shards=2, payload=40_000)
    plan = _plan(tmp_path)
    with _reading(tmp_path) as reader:
        for number in range(60):  # without a wait in between, so that the thread is met wherever it is
            epoch, origin = number % 7, number * 7 % 60
            reader.shards.open(plan, 0, _from(epoch, origin))
            if number % 3 == 0:
                continue
            message = reader.take()
            at = plan.epoch(epoch, origin)
            assert (message.header.epoch, message.header.slot) == (epoch, 0)
            assert _records(message) == [made[identity] for identity in at.ids(0, 0, message.header.count).tolist()]


def test_a_new_position_frees_the_room_of_what_was_dropped(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=8, shards=1, payload=_MIB - FRAME_BYTES)
    clock = _CountingClock()
    with _reading(tmp_path, clock) as reader:
        for messages in (16, 32, 48):
            reader.shards.open(_plan(tmp_path), 0, _START)
            assert clock.rests_after(messages)
            assert clock.messages == messages


def test_bytes_that_were_taken_stay_as_they_are_while_reading_goes_on(tmp_path: Path) -> None:
    made = make_dataset(tmp_path, records=40, shards=2, payload=100_000)
    plan = _plan(tmp_path)
    with _reading(tmp_path) as reader:
        reader.shards.open(plan, 0, _START)
        kept = [reader.take() for _ in range(4)]
        for _ in range(60):
            reader.take()
        ids = plan.epoch(0).ids(0, 0, sum(message.header.count for message in kept)).tolist()
        assert [record for message in kept for record in _records(message)] == [made[identity] for identity in ids]


def test_an_error_comes_after_the_messages_before_it_and_again_for_who_asks_again(tmp_path: Path) -> None:
    made = make_dataset(tmp_path, records=6, shards=2, payload=_MIB - FRAME_BYTES)
    clock = _CountingClock()
    with _reading(tmp_path, clock) as reader:
        changed = tmp_path / "train-00001-of-00002.tfrecord"
        plan = _plan(tmp_path, "none")
        os.utime(changed, ns=(1, 1))
        reader.shards.open(plan, 0, _START)
        assert clock.rests_after(4)  # it has failed before the first message is taken
        assert [_records(reader.take()) for _ in range(3)] == [[record] for record in made[:3]]
        for _ in range(2):
            with pytest.raises(DatasetError, match=changed.name):
                reader.wait()


def test_a_new_position_forgets_an_error_that_nobody_was_told(tmp_path: Path) -> None:
    made = make_dataset(tmp_path, records=6, shards=2, payload=_MIB - FRAME_BYTES)
    clock = _CountingClock()
    with _reading(tmp_path, clock) as reader:
        changed = tmp_path / "train-00001-of-00002.tfrecord"
        before = changed.stat()
        plan = _plan(tmp_path, "none")
        os.utime(changed, ns=(1, 1))
        reader.shards.open(plan, 0, _START)
        assert clock.rests_after(4)
        os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
        reader.shards.open(plan, 0, _START)
        assert [_records(reader.take()) for _ in range(6)] == [[record] for record in made]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda path: path.unlink(), "must not be removed", id="deleted"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-100]), "changed", id="cut"),
        pytest.param(lambda path: path.write_bytes(b""), "changed", id="emptied"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes() * 2), "changed", id="longer"),
        pytest.param(lambda path: _replace(path), "was replaced", id="replaced"),
    ],
)
@pytest.mark.parametrize("size_bytes", [200, 300_000])  # gathered from the mapping, and read
def test_a_shard_that_changes_while_it_is_read_is_an_error_that_names_it(
    tmp_path: Path, change: Callable[[Path], object], said: str, size_bytes: int
) -> None:
    make_dataset(tmp_path / "numbers", records=20, shards=1, payload=size_bytes)
    (path,) = (tmp_path / "numbers").glob("*.tfrecord")
    with _reading(tmp_path / "numbers") as reader:
        reader.shards.open(_plan(tmp_path / "numbers"), 0, _START)
        for _ in range(3):
            reader.take()
        change(path)
        with pytest.raises(DatasetError, match=said) as changed:
            _take_for_ever(reader)
        assert path.name in str(changed.value)


def _replace(path: Path) -> None:
    """Put another file of the same size and time in its place."""
    other = path.parent.parent / "other"
    shutil.copy2(path, other)
    other.replace(path)


def _take_for_ever(reader: _Reader) -> None:
    while True:
        reader.take()


def test_a_disk_that_fails_is_an_error_that_names_the_directory(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=20, shards=1)
    with _reading(tmp_path, _CountingClock(OSError(5, "Input/output error"), after=1)) as reader:
        reader.shards.open(_plan(tmp_path), 0, _START)
        assert len(_records(reader.take())) == 20
        with pytest.raises(DatasetError, match=f"{tmp_path} must be readable: .*Input/output error"):
            reader.wait()


def test_a_defect_in_the_thread_reaches_who_waits_for_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_dataset(tmp_path, records=20, shards=1)
    with _reading(tmp_path, _CountingClock(ZeroDivisionError("a defect"))) as reader:
        reader.shards.open(_plan(tmp_path), 0, _START)
        with pytest.raises(EmlioError, match=r"internal error while reading .*a defect"):
            reader.wait()
    assert "a defect" in caplog.text


def test_closing_ends_it_wherever_the_thread_is_and_may_be_repeated(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=200, shards=3, payload=30_000)
    plan = _plan(tmp_path)
    for taken in (None, 0, 1, 5, 20):  # None: it was never opened
        with _reading(tmp_path) as reader:
            if taken is not None:
                reader.shards.open(plan, 0, _START)
                for _ in range(taken):
                    reader.take()
            reader.shards.close()
            reader.shards.close()
            assert reader.shards.first() is None


def test_bytes_that_were_taken_outlive_the_end(tmp_path: Path) -> None:
    made = make_dataset(tmp_path, records=4, shards=1, payload=_MIB - FRAME_BYTES)
    with _reading(tmp_path) as reader:
        reader.shards.open(_plan(tmp_path, "none"), 0, _START)
        message = reader.take()
    assert _records(message) == made[:1]


def test_a_records_place_in_its_file_is_known_for_those_that_lie_here(tmp_path: Path) -> None:
    made = make_dataset(tmp_path, records=20, shards=2)
    sizes = [len(record) + FRAME_BYTES for record in made[10:]]
    with _reading(tmp_path) as reader:
        for first, count in ((0, 10), (3, 4), (9, 1), (9, 5)):
            found = reader.shards.sizes("train-00001-of-00002.tfrecord", first, count)
            assert found is not None
            assert found.offset == sum(sizes[:first])
            assert found.sizes.tolist() == sizes[first : first + count]
        assert reader.shards.sizes("elsewhere.tfrecord", 0, 1) is None


@pytest.mark.parametrize("mapped", [True, False])
def test_what_lies_here_and_what_is_missing_is_said(tmp_path: Path, mapped: bool) -> None:
    make_dataset(tmp_path, records=30, shards=9, mapped=mapped)
    for number in range(2, 9):
        (tmp_path / f"train-{number:05d}-of-00009.tfrecord").unlink()
    with _reading(tmp_path) as reader:
        holding = reader.shards.holding
    assert holding.here
    assert holding.peer == str(tmp_path)
    assert [(row.name, row.records) for row in holding.rows] == [
        ("train-00000-of-00009.tfrecord", 3),
        ("train-00001-of-00009.tfrecord", 3),
    ]
    assert holding.missing_count == 7
    assert holding.missing[0] == "train-00002-of-00009.tfrecord"


def test_a_directory_that_is_none_or_holds_no_shard_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, said in (("nowhere", "no such directory"), ("file", "is a file"), ("empty", "holds no files")):
        with pytest.raises(DatasetError, match=said) as refused:
            _Reader(tmp_path / name)
        assert str(tmp_path / name) in str(refused.value)
