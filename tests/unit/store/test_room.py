"""A limit that several datasets share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.store.opened.room import Room, level_of


class _Sharer:
    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.most = -1

    def allow(self, most: int) -> None:
        self.most = most


@given(limit=st.integers(0, 10_000), wanted=st.lists(st.integers(0, 10_000), max_size=20))
def test_a_level_uses_the_limit_and_no_more(limit: int, wanted: list[int]) -> None:
    level = level_of(limit, wanted)
    given_out = sum(min(one, level) for one in wanted)
    assert given_out <= limit
    assert given_out == sum(wanted) or given_out > limit - len(wanted), "what is left is less than one for each"


@pytest.mark.parametrize(
    ("wanted", "most"), [([10, 1000], [10, 90]), ([1000, 1000], [50, 50]), ([20, 30], [20, 30]), ([1000], [100])]
)
def test_who_wants_little_has_it_and_the_others_share_the_rest(wanted: list[int], most: list[int]) -> None:
    room = Room(lambda: 100)
    sharers = [_Sharer(one) for one in wanted]
    for sharer in sharers:
        room.join(sharer)
    assert [sharer.most for sharer in sharers] == [max(one, 16) for one in most]


def test_who_leaves_or_is_forgotten_gives_its_part_to_the_others() -> None:
    room = Room(lambda: 100)
    stays, leaves, forgotten = _Sharer(1000), _Sharer(1000), _Sharer(1000)
    for sharer in (stays, leaves, forgotten):
        room.join(sharer)
    assert stays.most == 33
    del forgotten, sharer
    room.leave(leaves)
    room.leave(leaves)
    assert stays.most == 100


def test_a_limit_that_was_raised_counts_from_the_next_dataset_on() -> None:
    limits = iter((40, 400))
    room = Room(lambda: next(limits))
    first, second = _Sharer(1000), _Sharer(100)
    room.join(first)
    assert first.most == 40
    room.join(second)
    assert (first.most, second.most) == (300, 100)
