"""Whatever the dataset, the owners, the cuts and the order of arrival: the planned records, each once, in whole batches."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.errors import RemoteProtocolError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec, walk
from emlio.receiver.placement.reorder import MOST_FILLED, LaneOrder, Reorder, WholeBatch
from emlio.tfrecord import check_frames, frame
from emlio.wire.data import DATA_VERSION, DataHeader, ids_checksum


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    """A dataset, a plan and who owns what."""

    plan: Plan
    owners: npt.NDArray[np.int64]
    streams: int
    epoch: int
    origin: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Message:
    stream: int
    header: DataHeader
    payload: bytes


@st.composite
def _jobs(draw: st.DrawFn) -> _Job:
    counts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(any))
    shards = tuple(
        ShardEntry(name=f"s{number}", records=records, size_bytes=records * 24, digest=f"{number:032x}")
        for number, records in enumerate(counts)
    )
    catalog = Catalog(shards=shards)
    drop_last = draw(st.booleans())
    world_size = draw(st.integers(1, min(4, catalog.records) if drop_last else 4))
    batch_size = draw(st.integers(1, catalog.records // world_size if drop_last else 7))
    spec = PlanSpec(
        seed=draw(st.integers(0, 3)),
        shuffle=Shuffle.parse(draw(st.sampled_from(["global", "block:3:2", "shard", "none"]))),
        batch_size=batch_size,
        world_size=world_size,
        drop_last=drop_last,
        pad=not drop_last and draw(st.booleans()),
    )
    streams = draw(st.integers(1, 3))
    owners = np.array(draw(st.lists(st.integers(0, streams - 1), min_size=len(shards), max_size=len(shards))))
    # The end of an epoch is a position too: nothing of it is left.
    origin = draw(st.sampled_from([0, 0, catalog.records]) | st.integers(0, catalog.records))
    return _Job(
        plan=Plan(catalog, spec),
        owners=owners.astype(np.int64),
        streams=streams,
        epoch=draw(st.integers(0, 2)),
        origin=origin,
    )


def _planned(job: _Job, rank: int, epochs: int) -> list[tuple[int, int, list[int]]]:
    """Epoch, step and ids of every batch of a rank, straight from the plan."""
    found: list[tuple[int, int, list[int]]] = []
    for epoch in range(job.epoch, job.epoch + epochs):
        plan = job.plan.epoch(epoch, job.origin if epoch == job.epoch else 0)
        for step in range(plan.steps):
            first, after = plan.batch_slots(rank, step)
            found.append((epoch, step, plan.ids(rank, first, after).tolist()))
    return found


def _messages(data: st.DataObject, job: _Job, rank: int, epochs: int) -> list[list[_Message]]:
    """What each stream sends, in its order, cut at random places."""
    sent: list[list[_Message]] = []
    for stream in range(job.streams):
        messages: list[_Message] = []
        for epoch in range(job.epoch, job.epoch + epochs):
            plan = job.plan.epoch(epoch, job.origin if epoch == job.epoch else 0)
            owed = [
                (slot, int(job.plan.catalog.bases[shard]) + record)
                for slots, shards, records in walk(plan, rank, 0, job.owners == stream, chunk=5)
                for slot, shard, record in zip(slots.tolist(), shards.tolist(), records.tolist(), strict=True)
            ]
            while owed:
                count = data.draw(st.integers(1, min(len(owed), 9)))
                part, owed = owed[:count], owed[count:]
                frames = [frame(identity.to_bytes(8, "little")) for _, identity in part]
                header = DataHeader(
                    version=DATA_VERSION,
                    session=1,
                    stream=1,
                    number=0,
                    epoch=epoch,
                    slot=part[0][0],
                    count=count,
                    ids_crc=ids_checksum(np.array([identity for _, identity in part], np.int64)),
                    sizes=np.array([len(data) for data in frames], "<u4").tobytes(),
                )
                messages.append(_Message(stream=stream, header=header, payload=b"".join(frames)))
        sent.append(messages)
    return sent


def _arrival(data: st.DataObject, sent: list[list[_Message]]) -> list[_Message]:
    """The streams' messages dealt over lanes; lanes keep their order, and that is all."""
    lanes: list[list[_Message]] = []
    for messages in sent:
        count = data.draw(st.integers(1, 3))
        lanes.extend(messages[lane::count] for lane in range(count))
    queues = [lane[::-1] for lane in lanes if lane]
    arrived: list[_Message] = []
    while queues:
        queue = queues[data.draw(st.integers(0, len(queues) - 1))]
        arrived.append(queue.pop())
        queues = [queue for queue in queues if queue]
    return arrived


def _reorder(job: _Job, rank: int, *, in_order: bool) -> Reorder:
    return Reorder(
        plan=job.plan,
        rank=rank,
        owners=job.owners,
        streams=[f"daemon store{number}" for number in range(job.streams)],
        epoch=job.epoch,
        origin=job.origin,
        in_order=in_order,
    )


def _place(reorder: Reorder, message: _Message) -> None:
    sizes = message.header.record_sizes()
    payload = memoryview(message.payload)
    run = check_frames(payload, sizes, verify=True)
    reorder.place(message.stream, message.header, payload, run.starts, run.ends, sizes, run.faults)


def _content(batch: WholeBatch) -> list[int]:
    """The numbers that the batch's records hold, by place."""
    found: dict[int, int] = {}
    for piece in batch.pieces:
        for start, end, slot in zip(piece.starts.tolist(), piece.ends.tolist(), piece.slots.tolist(), strict=True):
            assert slot not in found
            found[slot] = int.from_bytes(piece.buffer[start:end], "little")
    return [found[slot] for slot in range(batch.count)]


def _deliver(reorder: Reorder, arrived: list[_Message], most: int = MOST_FILLED) -> list[tuple[int, int, list[int]]]:
    """Place what arrives within the epochs that may be open; what is too early waits on its lane, as in the window.

    No more than `most` batches are filled before they are taken.
    """
    handed: list[tuple[int, int, list[int]]] = []
    waiting = list(arrived)
    while waiting:
        admitted = next(m for m in waiting if m.header.epoch <= reorder.next_epoch + 1)
        waiting.remove(admitted)
        _place(reorder, admitted)
        while (batch := reorder.take(most)) is not None:
            assert batch.whole
            assert batch.ids.tolist() == _content(batch)
            handed.append((batch.epoch, batch.step, batch.ids.tolist()))
    return handed


@given(_jobs(), st.data())
@settings(max_examples=50, deadline=None)
def test_in_order_every_rank_gets_exactly_what_is_planned(job: _Job, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, job.plan.spec.world_size - 1))
    arrived = _arrival(data, _messages(data, job, rank, 3))
    most = data.draw(st.sampled_from([1, 2, 5, MOST_FILLED]))
    assert _deliver(_reorder(job, rank, in_order=True), arrived, most) == _planned(job, rank, 3)


@given(_jobs(), st.data())
@settings(max_examples=40, deadline=None)
def test_out_of_order_the_same_batches_come_epoch_by_epoch(job: _Job, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, job.plan.spec.world_size - 1))
    arrived = _arrival(data, _messages(data, job, rank, 3))
    handed = _deliver(_reorder(job, rank, in_order=False), arrived, data.draw(st.sampled_from([1, 2, 5, MOST_FILLED])))
    assert sorted(handed) == _planned(job, rank, 3)
    assert [epoch for epoch, _, _ in handed] == sorted(epoch for epoch, _, _ in handed)


@given(_jobs(), st.data())
@settings(max_examples=25, deadline=None)
def test_all_ranks_together_get_every_record_of_an_epoch(job: _Job, data: st.DataObject) -> None:
    counts: dict[int, int] = defaultdict(int)
    for rank in range(job.plan.spec.world_size):
        for _, _, ids in _deliver(_reorder(job, rank, in_order=True), _arrival(data, _messages(data, job, rank, 1))):
            for identity in ids:
                counts[identity] += 1
    plan = job.plan.epoch(job.epoch, job.origin)
    left = job.plan.catalog.records - job.origin
    step = job.plan.spec.batch_size * job.plan.spec.world_size
    if job.plan.spec.drop_last:
        assert sum(counts.values()) == left // step * step
        assert set(counts.values()) <= {1}
    else:
        assert sum(counts.values()) == left + plan.repeated
        assert len(counts) >= left


@given(_jobs(), st.data())
@settings(max_examples=40, deadline=None)
def test_while_one_message_is_missing_its_batch_waits_and_names_the_stream_that_owes_it(
    job: _Job, data: st.DataObject
) -> None:
    arrived = _arrival(data, _messages(data, job, 0, 2))
    lost = arrived.pop(data.draw(st.integers(0, len(arrived) - 1)))
    reorder = _reorder(job, 0, in_order=True)
    handed: list[tuple[int, int, list[int]]] = []
    for message in arrived:
        if message.header.epoch > reorder.next_epoch + 1:
            continue
        _place(reorder, message)
        while (batch := reorder.take()) is not None:
            handed.append((batch.epoch, batch.step, batch.ids.tolist()))
    key = (lost.header.epoch, lost.header.slot // job.plan.spec.batch_size)
    assert handed == [batch for batch in _planned(job, 0, 2) if (batch[0], batch[1]) < key]
    if (reorder.next_epoch, reorder.next_step) == key:
        assert f"daemon store{lost.stream}" in reorder.missing_from()


@given(_jobs(), st.data())
@settings(max_examples=50, deadline=None)
def test_a_message_that_comes_twice_is_an_error_that_names_the_daemon(job: _Job, data: st.DataObject) -> None:
    arrived = _arrival(data, _messages(data, job, 0, 1))
    if not arrived:
        return
    reorder = _reorder(job, 0, in_order=data.draw(st.booleans()))
    until = data.draw(st.integers(1, len(arrived)))
    for message in arrived[:until]:
        _place(reorder, message)
        if data.draw(st.booleans()):
            while reorder.take() is not None:
                pass
    again = data.draw(st.sampled_from(arrived[:until]))
    with pytest.raises(RemoteProtocolError, match=f"daemon store{again.stream}: "):
        _place(reorder, again)


@given(_jobs(), st.data())
@settings(max_examples=50, deadline=None)
def test_a_message_of_another_stream_place_or_content_is_an_error_that_names_daemon_and_place(
    job: _Job, data: st.DataObject
) -> None:
    arrived = _arrival(data, _messages(data, job, 0, 1))
    if not arrived:
        return
    reorder = _reorder(job, 0, in_order=True)
    message = data.draw(st.sampled_from(arrived))
    header, stream = message.header, message.stream
    match data.draw(st.sampled_from(["stream", "slot", "content", "beyond"])):
        case "stream" if job.streams > 1:
            stream = (stream + 1) % job.streams
        case "slot" if header.slot > 0 and not _has_padding(job, header):
            header = _changed(header, slot=header.slot - 1)
        case "beyond":
            header = _changed(header, slot=header.slot + 2**40)
        case _:
            header = _changed(header, ids_crc=header.ids_crc ^ 1)
    with pytest.raises(RemoteProtocolError, match=f"daemon store{stream}: .*place {header.slot} of epoch {job.epoch}"):
        _place(reorder, _Message(stream=stream, header=header, payload=message.payload))


def _has_padding(job: _Job, header: DataHeader) -> bool:
    """Whether a record comes twice in the epoch: at another place there may be the same ones."""
    plan = job.plan.epoch(header.epoch, job.origin)
    ids = plan.ids(0, 0, plan.slots(0))
    return len(np.unique(ids)) < len(ids)


def _changed(header: DataHeader, **changes: int) -> DataHeader:
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    return DataHeader(**(fields | changes))


@given(_jobs(), st.data())
@settings(max_examples=30, deadline=None)
def test_bad_records_are_reported_by_shard_and_number_and_the_others_are_in_place(
    job: _Job, data: st.DataObject
) -> None:
    arrived = _arrival(data, _messages(data, job, 0, 1))
    catalog = job.plan.catalog
    bad: set[int] = set()
    damaged: list[_Message] = []
    for message in arrived:
        payload = bytearray(message.payload)
        for position in range(message.header.count):
            if data.draw(st.booleans()):
                payload[24 * position + 13] ^= 0x40  # every frame has 24 bytes: this is its data's second
                bad.add(int.from_bytes(message.payload[24 * position + 12 : 24 * position + 20], "little"))
        damaged.append(_Message(stream=message.stream, header=message.header, payload=bytes(payload)))
    reorder = _reorder(job, 0, in_order=True)
    for message in damaged:
        _place(reorder, message)
        while (batch := reorder.take()) is not None:
            named = {record.slot: (record.shard, record.record) for record in batch.bad}
            assert all("CRC32C" in record.reason for record in batch.bad)
            good = {
                slot: int.from_bytes(piece.buffer[start:end], "little")
                for piece in batch.pieces
                for start, end, slot in zip(
                    piece.starts.tolist(), piece.ends.tolist(), piece.slots.tolist(), strict=True
                )
            }
            assert named.keys().isdisjoint(good)
            for slot, identity in enumerate(batch.ids.tolist()):
                if identity in bad:
                    shard, record = catalog.locate(np.array([identity]))
                    # Padding may bring a record twice, once whole.
                    if slot in named:
                        assert named[slot] == (catalog.shards[int(shard[0])].name, int(record[0]))
                        continue
                assert good[slot] == identity


@given(st.lists(st.sampled_from(["next", "repeat", "gap", "lane"]), max_size=20))
def test_a_lane_accepts_its_messages_in_order_and_nothing_else(steps: list[str]) -> None:
    order = LaneOrder(lane=5, label="daemon store1 lane 5")
    due = 0
    for step in steps:
        lane, sequence, what = 5, due, ""
        if step == "next":
            due += 1
        elif step == "repeat" and due:
            sequence, what = due - 1, "a message was repeated"
        elif step in ("repeat", "gap"):
            sequence, what = due + 3, "messages were lost"
        else:
            lane, what = 6, "must be stamped for this lane"
        if what:
            with pytest.raises(RemoteProtocolError, match=f"daemon store1 lane 5: .*{what}"):
                order.check(lane, sequence)
        else:
            order.check(lane, sequence)
