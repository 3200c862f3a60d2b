"""Credit for tiny records: what they take besides their bytes counts, and few of the batches that are here are filled."""

from emlio.receiver.placement.reorder import MOST_FILLED, PLACE_BYTES
from emlio.tfrecord import FRAME_BYTES
from tests.unit.receiver.machine.test_intake import Rank

TINY = FRAME_BYTES + 8
AT_ONCE = 500


def _filled(bound: int) -> tuple[Rank, int]:
    """A rank of tiny records whose user takes nothing, and how many were sent."""
    rank = Rank(records=(100_000,), batch_size=1, bound=bound, record_bytes=TINY)
    sent = 0
    while rank.send(0, 0, range(sent, sent + AT_ONCE), TINY):
        sent += AT_ONCE
        rank.turn()
    return rank, sent


def test_tiny_records_count_with_what_they_take_besides_their_bytes() -> None:
    rank, sent = _filled(4 << 20)
    assert 0.9 * (4 << 20) <= sent * (TINY + PLACE_BYTES) <= (4 << 20)
    assert rank.intake.grants.peak_bytes == sent * (TINY + PLACE_BYTES)


def test_records_of_thousands_of_batches_wait_together_and_a_thousand_batches_are_filled() -> None:
    rank, sent = _filled(2 << 20)
    assert sent > 10 * MOST_FILLED
    assert len(rank.batches) == MOST_FILLED
    steps = list[int]()
    while len(steps) < sent:
        steps += [batch.step for batch in rank.batches]
        for _ in range(len(rank.batches)):
            rank.take()
        assert rank.gives_room()
        rank.turn()
        assert len(rank.batches) <= MOST_FILLED
    assert steps == list(range(sent))


def test_the_user_wakes_the_receive_thread_for_batches_that_wait_to_be_filled() -> None:
    rank, _ = _filled(4 << 20)
    for _ in range(MOST_FILLED // 2 - 1):
        rank.take()
    assert not rank.gives_room()
    rank.take()
    assert rank.gives_room()
    rank.turn()
    assert len(rank.batches) == MOST_FILLED


def test_a_message_that_takes_more_than_the_whole_bound_comes_where_the_next_batch_needs_it() -> None:
    rank, count = Rank(records=(100_000,), batch_size=1, bound=1 << 20, record_bytes=TINY), 20_000
    for first in range(0, 2 * count, count):
        assert rank.send(0, 0, range(first, first + count), TINY)
        assert not rank.send(0, 0, range(first + count, first + 2 * count), TINY)
        for taken in range(count):
            assert rank.batches, f"{taken} batches were taken"
            rank.take()
            if rank.gives_room():
                rank.turn()
        rank.turn()
