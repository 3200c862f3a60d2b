"""A stream's messages: what the plan says, cut as told, whatever the position and whoever owns what."""

import gc
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec, walk
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan
from emlio.reading.page_cache import PageCacheEngine
from emlio.store.opened import open_files
from emlio.tfrecord import FRAME_BYTES
from emlio.wire.data import ids_checksum
from emlio_testing.clock import ManualClock
from emlio_testing.datasets import make_dataset
from emlio_testing.reading import feed_of, page_cache

_RECORDS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    make_dataset(folder, records=_RECORDS, shards=4)
    return folder


@contextmanager
def _opened(folder: Path) -> Iterator[PageCacheEngine]:
    shards = page_cache(open_dataset("numbers", folder))
    try:
        yield shards
    finally:
        shards.close()
        shards.dataset.close()


def _read(feed: Feed, message: MessagePlan, gatherer: Gatherer) -> list[int]:
    """The numbers that a message's records hold."""
    out = np.zeros(message.size_bytes, np.uint8)
    feed.read(message, gatherer, out)
    ends = np.cumsum(message.sizes)
    return [
        int.from_bytes(out[end - size + 12 : end - size + 20].tobytes(), "little")
        for end, size in zip(ends.tolist(), message.sizes.tolist(), strict=True)
    ]


@given(st.data())
@settings(max_examples=60)
def test_a_feed_is_the_plans_walk_cut_into_messages(folder: Path, data: st.DataObject) -> None:
    spec = PlanSpec(
        seed=data.draw(st.integers(0, 5)),
        shuffle=Shuffle.parse(data.draw(st.sampled_from(["global", "block:4:3", "shard", "none"]))),
        batch_size=data.draw(st.integers(1, 40)),
        world_size=data.draw(st.integers(1, 3)),
        pad=data.draw(st.booleans()),
    )
    rank = data.draw(st.integers(0, spec.world_size - 1))
    epoch, origin = data.draw(st.integers(0, 3)), data.draw(st.integers(0, _RECORDS))
    owned = np.array(data.draw(st.lists(st.booleans(), min_size=4, max_size=4).filter(any)))
    message_bytes = data.draw(st.integers(1, 4000))
    with _opened(folder) as shards:
        plan = Plan(Catalog(shards=shards.dataset.entries), spec)
        slot = data.draw(st.integers(0, plan.epoch(epoch, origin).slots(rank)))
        gatherer = Gatherer()
        feed = feed_of(
            shards,
            spec=spec,
            rank=rank,
            position=(epoch, origin, slot),
            owned=owned,
            message_bytes=message_bytes,
        )
        due: list[tuple[int, int, int]] = []
        for number in range(epoch, epoch + 3):
            at = plan.epoch(number, origin if number == epoch else 0)
            for slots, shard, record in walk(at, rank, slot if number == epoch else 0, owned):
                ids = (plan.catalog.bases[shard] + record).tolist()
                due += [(number, place, identity) for place, identity in zip(slots.tolist(), ids, strict=True)]
        came: list[tuple[int, int, int]] = []
        while len(came) < len(due):
            message = feed.next(gatherer)
            if message is None:
                assert not feed.ended
                continue  # a stretch without a record
            ids = _read(feed, message, gatherer)
            places = [entry for entry in due[len(came) :] if entry[0] == message.epoch][: message.count]
            assert message.slot == places[0][1]
            assert message.ids_crc == ids_checksum(np.array(ids, np.int64))
            assert message.size_bytes == int(message.sizes.sum())
            assert message.size_bytes <= message_bytes or message.count == 1
            came += [(message.epoch, place, identity) for (_, place, _), identity in zip(places, ids, strict=True)]
        assert came[: len(due)] == due


def test_messages_are_filled_as_far_as_they_go(folder: Path) -> None:
    with _opened(folder) as shards:
        feed, gatherer = (
            feed_of(shards, spec=PlanSpec(batch_size=8, shuffle=Shuffle.parse("none")), message_bytes=2000),
            Gatherer(),
        )
        messages = [feed.next(gatherer) for _ in range(5)]
        for message, following in pairwise(messages):
            assert message is not None
            assert following is not None
            assert message.size_bytes + int(following.sizes[0]) > 2000


def test_a_record_longer_than_a_message_goes_alone_and_whole(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=6, shards=1, payload=lambda n: n.to_bytes(8, "little") * (1000 if n == 2 else 1))
    with _opened(tmp_path) as shards:
        feed = feed_of(shards, spec=PlanSpec(batch_size=6, shuffle=Shuffle.parse("none")), message_bytes=100)
        sizes: list[list[int]] = []
        gatherer = Gatherer()
        while sum(map(len, sizes)) < 6:
            message = feed.next(gatherer)
            assert message is not None
            sizes.append(message.sizes.tolist())
        small, large = 8 + FRAME_BYTES, 8000 + FRAME_BYTES
        assert sizes == [[small, small], [large], [small, small, small]]


def test_an_order_that_brings_this_rank_nothing_ends_after_what_is_left(folder: Path) -> None:
    # Without a shuffle rank 1 of 2 with batches of 60 gets the second half for ever.
    spec = PlanSpec(batch_size=60, world_size=2, shuffle=Shuffle.parse("none"))
    owned = np.array([True, False, False, False])
    with _opened(folder) as shards:
        none = feed_of(shards, spec=spec, rank=1, owned=owned)
        while not none.ended:
            assert none.next(Gatherer()) is None
        late = feed_of(shards, spec=spec, rank=0, position=(0, 20, 0), owned=owned)
        first = late.next(Gatherer())
        assert first is not None
        assert (first.epoch, first.slot) == (0, 0)


def test_planned_messages_still_go_out_when_the_order_ends(folder: Path) -> None:
    # From place 60 on the rest is 60 places, 30 for each rank: rank 1 then gets shard 3 only, and rank 0 shard 2, which it
    # gets in no whole epoch.
    spec = PlanSpec(batch_size=60, world_size=2, shuffle=Shuffle.parse("none"))
    owned = np.array([False, False, True, False])
    with _opened(folder) as shards:
        feed, gatherer = (
            feed_of(
                shards,
                spec=spec,
                rank=0,
                position=(0, 60, 0),
                owned=owned,
                message_bytes=100_000,
            ),
            Gatherer(),
        )
        assert gatherer.cold, "else nothing is planned ahead"
        message = feed.next(gatherer)
        assert message is not None
        assert _read(feed, message, gatherer) == list(range(60, 90))
        while not feed.ended:
            assert feed.next(gatherer) is None


@pytest.mark.parametrize("stamped", [True, False])
def test_a_local_file_that_changed_is_noticed_by_the_next_read(tmp_path: Path, stamped: bool) -> None:
    make_dataset(tmp_path, records=40, shards=1)
    with _opened(tmp_path) as shards:
        feed, gatherer = (
            feed_of(shards, spec=PlanSpec(batch_size=8), message_bytes=200, clock=ManualClock()),
            Gatherer(),
        )
        first, second = feed.next(gatherer), feed.next(gatherer)
        assert first is not None
        assert second is not None
        _read(feed, first, gatherer)
        path = tmp_path / "train-00000-of-00001.tfrecord"
        before, content = path.stat(), path.read_bytes()
        path.write_bytes(content[len(content) // 2 :] + content[: len(content) // 2])
        if stamped:  # as rsync does
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(DatasetError, match=r"train-00000-of-00001\.tfrecord"):
            _read(feed, second, gatherer)


def test_a_local_file_whose_mode_changed_is_still_read(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=40, shards=1)
    with _opened(tmp_path) as shards:
        feed, gatherer = (
            feed_of(shards, spec=PlanSpec(batch_size=8), message_bytes=200, clock=ManualClock()),
            Gatherer(),
        )
        for number in range(4):
            message = feed.next(gatherer)
            assert message is not None
            _read(feed, message, gatherer)
            (tmp_path / "train-00000-of-00001.tfrecord").chmod((0o600, 0o640)[number % 2])


def test_a_file_of_another_host_that_changed_is_noticed_within_the_time_a_check_is_good_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_local(_: int) -> bool:
        return False

    monkeypatch.setattr(open_files, "is_local", is_local)
    make_dataset(tmp_path, records=40, shards=1)
    clock = ManualClock()
    with _opened(tmp_path) as shards:
        feed, gatherer = feed_of(shards, spec=PlanSpec(batch_size=8), message_bytes=200, clock=clock), Gatherer()
        first, second, third = feed.next(gatherer), feed.next(gatherer), feed.next(gatherer)
        assert first is not None
        assert second is not None
        assert third is not None
        _read(feed, first, gatherer)
        path = tmp_path / "train-00000-of-00001.tfrecord"
        path.write_bytes(path.read_bytes())
        _read(feed, second, gatherer)
        clock.advance(200_000_000)
        with pytest.raises(DatasetError, match=r"train-00000-of-00001\.tfrecord"):
            _read(feed, third, gatherer)


def test_a_feed_nobody_needs_frees_what_it_planned_without_the_garbage_collector(folder: Path) -> None:
    with _opened(folder) as shards:
        feed = feed_of(shards, spec=PlanSpec(batch_size=4))
        assert feed.next(Gatherer()) is not None
        gone = weakref.ref(feed)
        gc.disable()
        try:
            del feed
            assert gone() is None
        finally:
            gc.enable()


@pytest.mark.parametrize(("size", "fits"), [(80, True), (82, False), (101, False)])
def test_a_record_that_is_too_long_with_what_is_told_of_it_is_refused(
    size: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's label and path follow its bytes: 4 bytes of checksum, 4 of length, 4 of label, and 7 here."""
    monkeypatch.setattr("emlio.reading.message_planner.MAX_PAYLOAD_BYTES", 100)
    (tmp_path / "data" / "cat").mkdir(parents=True)
    (tmp_path / "data" / "cat" / "one").write_bytes(b"x" * size)
    with _opened(tmp_path / "data") as shards:
        feed = feed_of(shards, spec=PlanSpec(batch_size=1))
        if fits:
            message = feed.next(Gatherer())
            assert message is not None
            assert message.payload_bytes == 99
        else:
            with pytest.raises(DatasetError, match=rf"at most 81 bytes .*cat/one has {size}"):
                feed.next(Gatherer())
