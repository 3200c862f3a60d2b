"""What a stream that was opened again may repeat: of the epochs that were here when it was, also once they are handed out."""

import numpy as np
import pytest

from emlio.errors import RemoteProtocolError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.machine.message import Message
from emlio.receiver.placement.reorder import Reorder
from emlio.tfrecord import check_frames, frame
from emlio.wire.data import DATA_VERSION, DataHeader, ids_checksum

_RECORDS = 4


def _reorder(batch_size: int = _RECORDS) -> Reorder:
    """Two shards of two records, each of another stream: an epoch of four records."""
    shards = tuple(
        ShardEntry(name=f"s{number}", records=2, size_bytes=48, digest=f"{number:032x}") for number in range(2)
    )
    spec = PlanSpec(seed=0, shuffle=Shuffle.parse("none"), batch_size=batch_size, world_size=1)
    return Reorder(
        plan=Plan(Catalog(shards=shards), spec),
        rank=0,
        owners=np.array([0, 1]),
        streams=["daemon store1", "daemon store2"],
        epoch=0,
        origin=0,
        in_order=True,
    )


def _message(epoch: int, *slots: int, wrong: bool = False, extra: int = 0) -> Message:
    """What a stream sends for these places, which without a shuffle are the records' numbers, and so many bytes more in each."""
    frames = [frame(slot.to_bytes(8, "little") + bytes(extra)) for slot in slots]
    header = DataHeader(
        version=DATA_VERSION,
        session=1,
        stream=1,
        number=0,
        epoch=epoch,
        slot=slots[0],
        count=len(slots),
        ids_crc=ids_checksum(np.array(slots, np.int64)) ^ wrong,
        sizes=np.array([len(data) for data in frames], "<u4").tobytes(),
    )
    return Message(header=header, payload=memoryview(b"".join(frames)), sizes=header.record_sizes())


def _place(reorder: Reorder, stream: int, epoch: int, *slots: int, wrong: bool = False) -> int:
    message = _message(epoch, *slots, wrong=wrong)
    run = check_frames(message.payload, message.sizes, verify=True)
    return reorder.place(stream, message.header, message.payload, run.starts, run.ends, message.sizes, run.faults)


def _lose_the_first_stream(reorder: Reorder) -> None:
    """The second one's records are here, then it gets the first one's shard too, and brings that."""
    assert _place(reorder, 1, 0, 2, 3)
    reorder.reassign(np.array([1, 1]))
    assert reorder.reopen(1) == (0, 0)
    assert _place(reorder, 1, 0, 0, 1)
    batch = reorder.take()
    assert batch is not None
    assert batch.whole
    assert reorder.next_epoch == 1


def test_a_reopened_stream_may_repeat_records_of_an_epoch_that_is_handed_out() -> None:
    reorder = _reorder()
    _lose_the_first_stream(reorder)
    assert _place(reorder, 1, 0, 2, 3) == 0, "they were here"
    assert _place(reorder, 1, 1, 0, 1)
    assert _place(reorder, 1, 1, 2, 3)
    assert reorder.take() is not None
    assert _place(reorder, 1, 0, 2, 3) == 0, "a message may stay on its lane for as long as nobody needs it"


def test_what_it_repeats_must_be_the_plans_records_all_the_same() -> None:
    reorder = _reorder()
    _lose_the_first_stream(reorder)
    with pytest.raises(RemoteProtocolError, match="from place 2 of epoch 0 must be those of the plan"):
        _place(reorder, 1, 0, 2, 3, wrong=True)


def test_a_stream_that_was_not_opened_again_may_repeat_nothing() -> None:
    reorder = _reorder()
    assert _place(reorder, 0, 0, 0, 1)
    assert _place(reorder, 1, 0, 2, 3)
    assert reorder.take() is not None
    reorder.first_missing(1)  # which is asked also where nothing comes of it
    with pytest.raises(RemoteProtocolError, match=r"daemon store2: .* of epoch 1 or the two after, got epoch 0"):
        _place(reorder, 1, 0, 2, 3)


def test_a_stream_that_is_opened_again_may_not_repeat_what_was_handed_out_before() -> None:
    reorder = _reorder()
    _lose_the_first_stream(reorder)
    assert reorder.reopen(1) == (1, 0)
    with pytest.raises(RemoteProtocolError, match="of epoch 1 or the two after, got epoch 0"):
        _place(reorder, 1, 0, 2, 3)
    for epoch in (1, 2):
        assert _place(reorder, 1, epoch, 0, 1, 2, 3)
        assert reorder.take() is not None
    with pytest.raises(RemoteProtocolError, match="of epoch 3 or the two after, got epoch 2"):
        _place(reorder, 1, 2, 0, 1)  # it brought these itself since then


def test_a_message_fills_the_batches_that_are_asked_for_and_the_others_later() -> None:
    reorder = _reorder(batch_size=1)
    assert _place(reorder, 1, 0, 2, 3)
    assert _place(reorder, 0, 0, 0, 1)
    steps: list[int] = []
    for most in (3, 0, 0, 0, 1):
        batch = reorder.take(most)
        if batch is not None:
            steps.append(batch.step)
    assert steps == [0, 1, 2, 3]
    assert reorder.next_epoch == 1


def test_what_is_in_no_batch_yet_is_here_all_the_same() -> None:
    reorder = _reorder(batch_size=1)
    assert _place(reorder, 1, 0, 2, 3)
    assert reorder.first_missing(1) == (1, 2)
    with pytest.raises(RemoteProtocolError, match="came twice"):
        _place(reorder, 1, 0, 2, 3)
    assert reorder.missing_from() == ("daemon store1",)


def test_a_message_of_an_epoch_that_is_in_no_batch_yet_may_be_repeated_after_the_epoch() -> None:
    reorder = _reorder(batch_size=1)
    for epoch in range(2):
        assert _place(reorder, 0, epoch, 0, 1)
    assert _place(reorder, 1, 0, 3)
    assert _place(reorder, 1, 1, 2, 3)
    assert reorder.reopen(1) == (0, 2)
    assert _place(reorder, 1, 0, 2, 3)
    while reorder.take() is not None:
        pass
    assert reorder.next_epoch == 2
    assert _place(reorder, 1, 1, 2, 3) == 0, "it may have been delayed on another lane"
