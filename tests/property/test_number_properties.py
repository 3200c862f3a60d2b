"""The numbers of a stream's messages, beside a plain set of them."""

import random
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import RemoteProtocolError
from emlio.receiver.machine.message import MessageNumbers


def _takes(numbers: MessageNumbers, number: int) -> bool:
    with suppress(RemoteProtocolError):
        numbers.add(number)
        return True
    return False


@given(st.lists(st.integers(0, 40)))
def test_a_number_is_taken_exactly_once_whatever_the_order(order: list[int]) -> None:
    numbers, seen = MessageNumbers("store1"), set[int]()
    for number in order:
        assert _takes(numbers, number) == (number not in seen)
        seen.add(number)
        missing = set(range(max(seen))) - seen
        assert numbers.gaps == sum(number - 1 not in missing for number in missing)


@given(st.lists(st.integers(0, 200)), st.integers(1, 5))
def test_with_little_memory_none_is_taken_twice_and_the_newest_gaps_are_filled(order: list[int], most: int) -> None:
    numbers, seen = MessageNumbers("store1", most_gaps=most), set[int]()
    for number in order:
        missing = set(range(max(seen, default=-1))) - seen
        newer_gaps = sum(gap - 1 not in missing for gap in missing if gap > number)
        if _takes(numbers, number):
            assert number not in seen
            seen.add(number)
        elif number not in seen:
            assert newer_gaps + 1 >= most, "it was refused although there was room for its gap"
            seen.add(number)  # given up: it is refused from now on
        assert numbers.gaps <= most


@given(st.integers(1, 6), st.randoms(use_true_random=False))
def test_messages_of_lanes_that_each_keep_their_order_are_all_taken(lanes: int, draw: random.Random) -> None:
    queues: list[list[int]] = [[] for _ in range(lanes)]
    for number in range(100):
        draw.choice(queues).append(number)
    numbers, taken = MessageNumbers("store1", most_gaps=100), 0
    while any(queues):
        queue = draw.choice([queue for queue in queues if queue])
        numbers.add(queue.pop(0))
        taken += 1
    assert (taken, numbers.gaps) == (100, 0)
