"""The numbers of a stream's messages: each is taken once, in any order, with bounded memory."""

import pytest

from emlio.errors import RemoteProtocolError
from emlio.receiver.placement.message_numbers import MessageNumbers


def test_numbers_in_order_leave_no_gaps() -> None:
    numbers = MessageNumbers("daemon store1")
    for number in range(1000):
        numbers.add(number)
    assert numbers.gaps == 0
    for number in (0, 500, 999):
        with pytest.raises(RemoteProtocolError, match=f"daemon store1: .*message {number} was repeated"):
            numbers.check(number)


def test_messages_of_a_slow_lane_come_later_and_once() -> None:
    numbers = MessageNumbers("daemon store1")
    for number in (0, 5, 9, 7, 2):
        numbers.add(number)
    assert numbers.gaps == 4
    for number in (5, 0, 9, 2, 7):
        with pytest.raises(RemoteProtocolError, match=f"message {number} was repeated"):
            numbers.add(number)
    for number in (1, 3, 4, 6, 8):
        numbers.add(number)
    assert numbers.gaps == 0
    numbers.add(10)


def test_what_is_only_checked_is_not_taken() -> None:
    numbers = MessageNumbers("daemon store1")
    for _ in range(2):
        numbers.check(3)
    numbers.add(3)
    with pytest.raises(RemoteProtocolError):
        numbers.check(3)


def test_of_too_many_gaps_the_oldest_counts_as_taken() -> None:
    numbers = MessageNumbers("daemon store1", most_gaps=3)
    for number in (1, 3, 5, 7):  # 0, 2, 4 and 6 are missing
        numbers.add(number)
    assert numbers.gaps == 3
    with pytest.raises(RemoteProtocolError, match="message 0 was repeated or came too late to check"):
        numbers.add(0)
    for number in (2, 4, 6):
        numbers.add(number)


def test_a_gap_that_is_split_counts_as_two() -> None:
    numbers = MessageNumbers("daemon store1", most_gaps=2)
    for number in (10, 2, 6):  # 0 and 1, 3 to 5, 7 to 9
        numbers.add(number)
    assert numbers.gaps == 2
    for number in (0, 1, 2, 6, 10):
        with pytest.raises(RemoteProtocolError):
            numbers.check(number)
    for number in (3, 4, 5, 7, 8, 9):
        numbers.add(number)
    assert numbers.gaps == 0


def test_a_huge_number_costs_no_memory() -> None:
    numbers = MessageNumbers("daemon store1")
    numbers.add((1 << 62) - 1)
    assert numbers.gaps == 1
    numbers.add(1 << 40)
    assert numbers.gaps == 2
