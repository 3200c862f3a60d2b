"""The generation that a rank reads when its daemons give different ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.receiver.machine.generation import GivenGeneration, common_generation


def answer(peer: str, gave: int, *available: int) -> GivenGeneration:
    return GivenGeneration(peer=peer, given=gave, available=available)


def test_daemons_that_give_the_same_are_believed_whatever_else_they_have() -> None:
    assert common_generation("x", [answer("a", 1, 1, 2), answer("b", 1, 1)]) == 1
    assert common_generation("x", [answer("a", 5)]) == 5, "a former generation is none of those that new jobs get"
    assert common_generation("x", []) is None


def test_the_newest_that_all_have_is_read() -> None:
    assert common_generation("x", [answer("a", 3, 1, 2, 3), answer("b", 2, 1, 2)]) == 2
    assert common_generation("x", [answer("a", 3, 1, 3), answer("b", 2, 1, 2)]) == 1


def test_one_that_is_newer_than_what_a_daemon_gave_is_not_read_though_all_have_it() -> None:
    """The daemon gave it because the first rank of the job has it."""
    assert common_generation("x", [answer("a", 1, 1, 2), answer("b", 2, 1, 2)]) == 1


def test_without_a_common_one_the_error_names_what_each_daemon_has() -> None:
    with pytest.raises(DatasetError, match=r"one generation of 'x' in common: a has 2, 3, b has 1\. Publish"):
        common_generation("x", [answer("a", 3, 2, 3), answer("b", 1, 1)])


NUMBERS = st.sets(st.integers(1, 6), min_size=1, max_size=4)


@given(first=NUMBERS, second=NUMBERS, more=NUMBERS)
def test_ranks_that_come_before_and_after_a_publication_choose_the_same(
    first: set[int], second: set[int], more: set[int]
) -> None:
    """Each daemon gives the ranks of a job the same, and may have got more generations between them."""
    newest = max(first), max(second)

    def asked(*extra: int) -> int | None:
        answers = [
            answer(peer, gave, *sorted({*has, *extra}))
            for peer, gave, has in (("a", newest[0], first), ("b", newest[1], second))
        ]
        try:
            return common_generation("x", answers)
        except DatasetError:
            return None

    newer = [number + max(newest) for number in more]
    assert asked() == asked(*newer)
