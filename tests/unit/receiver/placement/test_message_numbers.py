"""The numbers of a stream's messages: each is taken once, in any order, with bounded memory."""

import pytest

from emlio.errors import RemoteProtocolError
from emlio.receiver.machine.message import MessageNumbers


def test_what_is_only_checked_is_not_taken() -> None:
    numbers = MessageNumbers("daemon store1")
    for _ in range(2):
        numbers.check(3)
    numbers.add(3)
    with pytest.raises(RemoteProtocolError):
        numbers.check(3)


def test_a_huge_number_costs_no_memory() -> None:
    numbers = MessageNumbers("daemon store1")
    numbers.add((1 << 62) - 1)
    assert numbers.gaps == 1
    numbers.add(1 << 40)
    assert numbers.gaps == 2
