"""Places in the bytes of many connections, and a rate they share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio_testing.traffic import Course, Mark, Marks, Pace

_MS = 1_000_000


def _marks(*marks: tuple[int, int]) -> Marks:
    made = Marks()
    for left, mask in marks:
        made.add(Mark(course=Course.DATA, left=left, mask=mask))
    return made


def _sent(marks: Marks, pieces: list[int]) -> tuple[dict[int, int], list[int]]:
    """The masks by byte, and after how many bytes connections ended, when this much is sent at most at once."""
    masks, ends, went = dict[int, int](), list[int](), 0
    for piece in pieces:
        left = piece
        while left:
            count = marks.room(Course.DATA, left)
            assert 1 <= count <= left
            if mask := marks.mask(Course.DATA):
                assert count == 1
                masks[went] = mask
            went, left = went + count, left - count
            ends.extend(went for mark in marks.went(Course.DATA, count) if not mark.mask)
    return masks, ends


@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.sampled_from([0, 1, 2, 128])), max_size=6, unique_by=lambda mark: mark[0]
    ),
    st.lists(st.integers(1, 40), max_size=6),
)
def test_each_mark_is_met_at_its_byte_once_however_the_bytes_are_cut(
    marks: list[tuple[int, int]], pieces: list[int]
) -> None:
    total = sum(pieces)
    masks, ends = _sent(_marks(*marks), pieces)
    assert masks == {left: mask for left, mask in marks if mask and left < total}
    assert ends == sorted(left for left, mask in marks if not mask and left <= total)


def test_the_very_next_byte_can_be_changed_and_two_masks_meet_in_one_byte() -> None:
    assert _sent(_marks((0, 1), (0, 2), (3, 4)), [5]) == ({0: 3, 3: 4}, [])


def test_bytes_of_another_course_bring_nothing_nearer() -> None:
    marks = _marks((1, 1))
    assert marks.went(Course.CONTROL, 10) == marks.went(Course.TO_DAEMON, 10) == []
    assert marks.room(Course.CONTROL, 99) == 99
    assert marks.mask(Course.CONTROL) == 0
    assert marks.room(Course.DATA, 99) == 1


def test_marks_that_were_cleared_do_not_happen() -> None:
    marks = _marks((2, 1), (3, 0))
    marks.clear()
    assert _sent(marks, [10]) == ({}, [])


@pytest.mark.parametrize(("left", "mask"), [(-1, 1), (0, 0), (5, 256), (5, -1)])
def test_a_mark_that_cannot_be_is_refused(left: int, mask: int) -> None:
    with pytest.raises(ValueError, match="must"):
        Mark(course=Course.DATA, left=left, mask=mask)


def test_a_pace_allows_what_its_rate_earned_and_saves_up_little() -> None:
    pace = Pace(1_000_000, 0)
    assert pace.allowed(0) == 0
    assert pace.allowed(5 * _MS) == 5000
    pace.went(5000)
    assert pace.allowed(6 * _MS) == 0  # too little to be worth a turn
    assert pace.pause_s == pytest.approx(0.001)
    assert pace.allowed(7 * _MS) == 2000
    assert pace.allowed(10_000 * _MS) == 20_000  # 20 ms of it, not ten seconds


def test_a_pace_of_less_than_a_byte_a_moment_still_moves() -> None:
    pace = Pace(2.0, 0)
    assert pace.allowed(400 * _MS) == 0
    assert 0 < pace.pause_s <= 0.5
    assert pace.allowed(600 * _MS) == 1


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_above_nothing(rate: float) -> None:
    with pytest.raises(ValueError, match="a rate must be above 0"):
        Pace(rate, 0)
