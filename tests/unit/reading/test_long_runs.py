"""Long runs of records: messages of their own, and sent from where they lie."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.daemon.reading.session_memory import MemoryBudget, SessionMemory
from emlio.daemon.reading.stream import Stream, StreamLimits
from emlio.errors import DatasetError
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec, walk
from emlio.reading.buffers import BufferPool
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan
from emlio.reading.page_cache import PageCacheEngine
from emlio.store.opened.leases import Leases
from emlio.wire.limits import MAX_MESSAGE_RECORDS
from emlio_testing.datasets import make_dataset
from emlio_testing.leases import Returned, gives_leases, leases_on
from emlio_testing.reading import feed_of, made_up, page_cache

_LONG = 1 << 20
_RECORD = 700_000


def _dataset_of(sizes: list[list[int]]) -> Dataset:
    """Shards whose records have these sizes; there are no files, only what is known of them."""
    return made_up("sizes", {f"shard-{number}": [0, *accumulate(of)] for number, of in enumerate(sizes)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One record of a message."""

    shard: int
    start: int
    size: int

    def goes_on_in(self, other: "_Piece") -> bool:
        return (other.shard, other.start) == (self.shard, self.start + self.size)


def _pieces(message: MessagePlan) -> list[_Piece]:
    columns = (message.shard.tolist(), message.starts.tolist(), message.sizes.tolist())
    return [_Piece(shard=shard, start=start, size=size) for shard, start, size in zip(*columns, strict=True)]


def _first_run_bytes(pieces: list[_Piece]) -> int:
    size = pieces[0].size
    for piece, following in pairwise(pieces):
        if not piece.goes_on_in(following):
            break
        size += following.size
    return size


_SIZES = st.lists(
    st.lists(st.integers(1, 40_000) | st.sampled_from([200_000, _LONG - 1, _LONG, 3 * _LONG]), min_size=1, max_size=30),
    min_size=1,
    max_size=4,
)


@given(
    sizes=_SIZES,
    shuffle=st.sampled_from(["global", "block:4:3", "shard", "none"]),
    message_bytes=st.sampled_from([1000, _LONG - 1, _LONG, 4 * _LONG]),
    batch_size=st.integers(1, 40),
)
@settings(max_examples=150)
def test_a_long_run_is_a_message_of_its_own_and_everything_else_is_filled_up(
    sizes: list[list[int]], shuffle: str, message_bytes: int, batch_size: int
) -> None:
    shards = page_cache(_dataset_of(sizes))
    spec = PlanSpec(batch_size=batch_size, shuffle=Shuffle.parse(shuffle))
    feed, gatherer = feed_of(shards, spec=spec, message_bytes=message_bytes), Gatherer()
    gatherer.cold = False  # else the disk would be asked for what there is no file of
    plan = Plan(Catalog(shards=shards.dataset.entries), spec)
    due = [
        _Piece(shard=number, start=sum(sizes[number][:place]), size=sizes[number][place])
        for _, shard, record in walk(plan.epoch(0), 0, 0, np.ones(len(sizes), np.bool_))
        for number, place in zip(shard.tolist(), record.tolist(), strict=True)
    ]
    messages = list[list[_Piece]]()
    while sum(map(len, messages)) < len(due):
        message = feed.next(gatherer)
        assert message is not None
        pieces = _pieces(message)
        assert message.size_bytes == sum(piece.size for piece in pieces)
        assert message.one_run == all(piece.goes_on_in(following) for piece, following in pairwise(pieces))
        assert message.size_bytes <= message_bytes or message.count == 1
        if not message.one_run:
            assert _first_run_bytes(pieces) < _LONG, "a long run must not be copied because of what follows it"
        messages.append(pieces)
    assert [piece for pieces in messages for piece in pieces] == due
    for pieces, following in pairwise(messages):
        size = sum(piece.size for piece in pieces)
        full = size + following[0].size > message_bytes or len(pieces) == MAX_MESSAGE_RECORDS
        ended_run = _first_run_bytes(pieces) == size >= _LONG and not pieces[-1].goes_on_in(following[0])
        assert full or ended_run, "a message must not be shorter than it has to be"


# ---- sent from where they lie -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if not gives_leases(tmp_path):
        pytest.skip(f"the file system of {tmp_path} gives no leases")
    make_dataset(tmp_path / "large", records=8, shards=2, payload=_RECORD)
    return tmp_path / "large"


@contextmanager
def _opened(folder: Path, leases: Leases | None) -> Iterator[PageCacheEngine]:
    shards = page_cache(open_dataset("large", folder), leases)
    try:
        yield shards
    finally:
        if leases is not None:
            leases.close()
        shards.close()
        shards.dataset.close()


def _both_ways(feed: Feed, rank: Returned) -> tuple[npt.NDArray[np.uint8] | None, bytes]:
    """The next message as a slice, and as a copy."""
    gatherer = Gatherer()
    message = feed.next(gatherer)
    assert message is not None
    copied = np.empty(message.size_bytes, np.uint8)
    feed.read(message, gatherer, copied)
    return feed.borrow(message, gatherer, rank), copied.tobytes()


def test_long_runs_are_lent_and_are_what_reading_gives(folder: Path) -> None:
    rank, spec = Returned(), PlanSpec(batch_size=4, shuffle=Shuffle.parse("none"))
    with _opened(folder, Leases()) as shards:
        feed = feed_of(shards, spec=spec, message_bytes=3 * _LONG)
        for _ in range(6):
            lent, copied = _both_ways(feed, rank)
            assert lent is not None
            assert lent.tobytes() == copied
            del lent
        assert leases_on(shards.dataset.shard_paths[0]) == ["ACTIVE"]
        assert sum(rank.back) == 3 * sum(shard.size_bytes for shard in shards.dataset.shards)


@pytest.mark.parametrize(
    ("message_bytes", "shuffle", "leased"),
    [(_LONG - 1, "none", True), (3 * _LONG, "none", False), (2 * _RECORD + 100, "global", True)],
    ids=["short", "no lease", "scattered"],
)
def test_other_messages_are_copied(folder: Path, message_bytes: int, shuffle: str, leased: bool) -> None:
    rank, spec = Returned(), PlanSpec(batch_size=4, seed=3, shuffle=Shuffle.parse(shuffle))
    with _opened(folder, Leases() if leased else None) as shards:
        feed = feed_of(shards, spec=spec, message_bytes=message_bytes)
        lent, _ = _both_ways(feed, rank)
        assert lent is None
        assert rank.back == []


@contextmanager
def _stream(shards: PageCacheEngine) -> Iterator[Stream]:
    feed = feed_of(shards, "none", 3 * _LONG)
    pool = BufferPool(_LONG, 0)
    ledger = MemoryBudget(1 << 30)
    stream = Stream(
        session=1,
        stream=1,
        feed=feed,
        pool=pool,
        memory=SessionMemory(ledger),
        limits=StreamLimits(ready_bytes=1 << 30),
        label="session 1",
    )
    try:
        yield stream
    finally:
        stream.close()
    assert ledger.held_bytes == 0
    assert pool.lent == 0


def test_a_streams_bytes_count_until_the_slice_is_back(folder: Path) -> None:
    with _opened(folder, Leases()) as shards, _stream(shards) as stream:
        assert stream.produce(Gatherer(), 1, lambda _: None)
        outgoing = stream.first()
        assert outgoing is not None
        assert stream.in_flight_bytes == outgoing.payload.nbytes > _LONG
        assert not stream.produce(Gatherer(), 1, lambda _: None)
        stream.sent()
        assert stream.in_flight_bytes > 0
        del outgoing
        assert stream.in_flight_bytes == 0
        assert stream.produce(Gatherer(), 1, lambda _: None)
        stream.close()
        assert stream.in_flight_bytes == 0


def test_a_file_that_was_replaced_ends_the_stream_and_leaves_nothing_counted(folder: Path) -> None:
    path = folder / "train-00000-of-00002.tfrecord"
    with _opened(folder, Leases()) as shards:
        path.with_suffix(".new").write_bytes(path.read_bytes())
        path.with_suffix(".new").replace(path)
        with _stream(shards) as stream:
            with pytest.raises(DatasetError, match=path.name):
                stream.produce(Gatherer(), _LONG, lambda _: None)
            assert stream.in_flight_bytes == 0, "a drain would wait for it"
