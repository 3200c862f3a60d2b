"""The waits for records: counted while no batch is here, and no longer once one is being made."""

from emlio.receiver.batches.hunger import Hunger, TurnWork
from emlio_testing.clock import ManualClock


class _Waits:
    """A clock, the receive thread's work, and the waits."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.receiving = TurnWork(self.clock.monotonic_ns)
        self.hunger = Hunger(self.receiving, self.clock.monotonic_ns)


def test_a_wait_lasts_until_it_is_ended() -> None:
    waits = _Waits()
    waits.hunger.end()
    assert waits.hunger.wait_ns == 0
    waits.hunger.begin()
    assert waits.hunger.now
    waits.clock.advance(5)
    waits.hunger.end()
    assert not waits.hunger.now
    waits.clock.advance(7)
    waits.hunger.end()
    assert (waits.hunger.wait_ns, waits.hunger.receive_ns) == (5, 0)


def test_what_a_batch_takes_to_be_made_is_no_wait_for_records() -> None:
    waits = _Waits()
    waits.hunger.came()  # while no thread waits
    waits.hunger.begin()
    waits.clock.advance(5)
    waits.hunger.came()
    waits.clock.advance(7)
    waits.hunger.came()  # the next batch
    waits.hunger.end()
    assert waits.hunger.wait_ns == 5


def test_the_receive_threads_work_counts_while_there_is_a_wait() -> None:
    waits = _Waits()
    waits.receiving.begin()
    waits.clock.advance(3)
    waits.receiving.end()
    waits.hunger.begin()
    waits.clock.advance(1)
    waits.receiving.begin()
    waits.clock.advance(2)
    assert waits.receiving.total_ns == 5
    waits.hunger.end()  # in the middle of its turn
    assert (waits.hunger.wait_ns, waits.hunger.receive_ns) == (3, 2)
    waits.clock.advance(4)
    waits.receiving.end()
    waits.clock.advance(4)
    assert waits.receiving.total_ns == 9
