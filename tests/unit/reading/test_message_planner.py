"""The messages of a stream."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import DatasetError
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading.message_planner import MessagePlan, MessagePlanner, Opening, Searched, StreamPosition
from emlio.tfrecord import FRAME_BYTES
from emlio.wire.limits import MAX_PAYLOAD_BYTES
from emlio_testing.datasets import make_dataset
from emlio_testing.reading import made_up


def _planner(dataset: Dataset, spec: PlanSpec | None = None, message_bytes: int = 8000, **more: Any) -> MessagePlanner:
    entries = dataset.entries
    return MessagePlanner(
        plan=Plan(Catalog(shards=entries), spec or PlanSpec(batch_size=4)),
        rank=0,
        owned=np.ones(len(entries), np.bool_),
        local=np.arange(len(entries)),
        dataset=dataset,
        message_bytes=message_bytes,
        **more,
    )


def _message(each: MessagePlan | Searched) -> MessagePlan:
    assert isinstance(each, MessagePlan)
    return each


def test_the_longest_record_is_sent_and_a_longer_one_is_the_datasets_fault(tmp_path: Path) -> None:
    make_dataset(tmp_path / "films", records=3, shards=1)
    with open_dataset("films", tmp_path / "films") as opened:
        (shard,) = opened.shards
        first, longest = int(shard.offsets[1]), int(shard.offsets[1]) + MAX_PAYLOAD_BYTES
        offsets = [0, first, longest, longest + MAX_PAYLOAD_BYTES + 1]
        long = made_up("films", {shard.name: offsets}, folder=tmp_path / "films")
        course = _planner(long, PlanSpec(batch_size=1, shuffle=Shuffle.parse("none")), 1 << 20)
        messages = course.messages(StreamPosition(epoch=0, origin=0, slot=0))
        assert [_message(next(messages)).size_bytes for _ in range(2)] == [first, MAX_PAYLOAD_BYTES]
        with pytest.raises(DatasetError, match=rf"record 2 of {opened.shard_paths[0]} has {MAX_PAYLOAD_BYTES + 1:,}"):
            next(messages)


def test_the_first_messages_are_smaller_until_they_add_up_to_the_opening(tmp_path: Path) -> None:
    make_dataset(tmp_path / "numbers", records=40, shards=2, payload=1000 - FRAME_BYTES)
    with open_dataset("numbers", tmp_path / "numbers") as dataset:
        course = _planner(
            dataset,
            opening=Opening(message_bytes=2000, total_bytes=5000),
        )
        messages = course.messages(StreamPosition(epoch=0, origin=0, slot=0))
        sizes = [_message(next(messages)).size_bytes for _ in range(12)]
        # 40 records are an epoch, and no message has records of two; the next epochs have no opening of their own.
        assert sizes == [2000, 2000, 2000, 8000, 8000, 8000, 8000, 2000, 8000, 8000, 8000, 8000]


def test_a_stream_ends_before_the_epoch_that_is_not_wanted(tmp_path: Path) -> None:
    make_dataset(tmp_path / "numbers", records=40, shards=2, payload=1000 - FRAME_BYTES)
    with open_dataset("numbers", tmp_path / "numbers") as dataset:
        course = _planner(
            dataset,
        )
        messages = [_message(each) for each in course.messages(StreamPosition(epoch=1, origin=0, slot=20, end=3))]
        assert [(m.epoch, m.slot) for m in messages] == [
            (1, 20),
            (1, 28),
            (1, 36),
            *((2, at) for at in range(0, 40, 8)),
        ]
        assert list(course.messages(StreamPosition(epoch=3, origin=0, slot=0, end=3))) == []


def _course(dataset: Dataset, spec: PlanSpec, *, absent_records: int = 0, owned: int = 2) -> MessagePlanner:
    """Of the first shards of a dataset of two, with one behind them that is not held here."""
    absent = ShardEntry(name="zzz", records=absent_records, size_bytes=16 * absent_records, digest="0" * 32)
    return MessagePlanner(
        plan=Plan(Catalog(shards=(*dataset.entries, absent)), spec),
        rank=0,
        owned=np.arange(3) < owned,
        local=np.array([0, 1, -1]),
        dataset=dataset,
        message_bytes=8000,
    )


@pytest.mark.parametrize("shuffle", ["global", "block", "shard", "none"])
def test_a_search_among_half_a_trillion_records_comes_back_after_each_stretch(tmp_path: Path, shuffle: str) -> None:
    make_dataset(tmp_path / "numbers", records=40, shards=2)
    with open_dataset("numbers", tmp_path / "numbers") as dataset:
        course = _course(dataset, PlanSpec(batch_size=4, shuffle=Shuffle.parse(shuffle)), absent_records=1 << 39)
        coming = course.messages(StreamPosition(epoch=3, origin=1 << 30, slot=0))
        assert [next(coming) for _ in range(100)] == [Searched(epoch=3)] * 100


def test_a_search_through_epochs_comes_back_after_each_and_finds_what_there_is(tmp_path: Path) -> None:
    make_dataset(tmp_path / "numbers", records=40, shards=2)
    with open_dataset("numbers", tmp_path / "numbers") as dataset:
        # One record of forty for each rank, and half of the records are owned.
        course = _course(dataset, PlanSpec(batch_size=1, world_size=40), owned=1)
        coming = course.messages(StreamPosition(epoch=0, origin=0, slot=0, end=100))
        seen = list(coming)
        assert [each.epoch for each in seen] == list(range(100))
        found = [each.epoch for each in seen if isinstance(each, MessagePlan)]
        mine = [epoch for epoch in range(100) if course.plan.epoch(epoch).ids(0, 0, 1)[0] < 20]
        assert found == mine
        assert 20 < len(found) < 80


def test_a_stream_that_owns_no_record_ends_at_once(tmp_path: Path) -> None:
    make_dataset(tmp_path / "numbers", records=40, shards=2)
    with open_dataset("numbers", tmp_path / "numbers") as dataset:
        course = _course(dataset, PlanSpec(batch_size=1), owned=0)
        assert list(course.messages(StreamPosition(epoch=0, origin=0, slot=0))) == []
