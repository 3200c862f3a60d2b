"""Lanes are refused while there are descriptors left for those who call."""

import pytest

from emlio.daemon.access.descriptors import Descriptors
from emlio.errors import TransportError


def lanes(limit: int, used: int | None) -> int:
    """How many lanes may be connected where so many descriptors are used."""
    descriptors = Descriptors(lambda: limit, lambda: used, lambda: 0)
    taken = 0
    while taken <= limit:
        try:
            descriptors.take_lane()
        except TransportError:
            return taken
        taken += 1
    raise AssertionError("without end")


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [(1024, 20, 1024 - 20 - 102), (64, 20, 64 - 20 - 32), (64, 40, 0), (32, 20, 0), (1024, None, 0)],
)
def test_some_are_kept_for_those_who_call(limit: int, used: int | None, expected: int) -> None:
    assert lanes(limit, used) == expected


def test_they_are_counted_again_after_a_while() -> None:
    now_ns, used = [0], [1000]
    descriptors = Descriptors(lambda: 1024, lambda: used[0], lambda: now_ns[0])
    with pytest.raises(TransportError, match="close to its limit of 1,024"):
        descriptors.take_lane()
    used[0] = 100
    with pytest.raises(TransportError):
        descriptors.take_lane()
    now_ns[0] = 100_000_000
    descriptors.check()
    descriptors.take_lane()


def test_this_process_has_some() -> None:
    Descriptors().take_lane()
