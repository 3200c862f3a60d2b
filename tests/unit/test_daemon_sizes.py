"""Sizes of records as a daemon looks them up in the index."""

from collections.abc import Sequence

import pytest

from emlio.daemon.datasets.served import ServedDataset
from emlio.wire.limits import RECORDS_PER_SIZES
from emlio.wire.questions import AskSizes, Sizes
from emlio_testing.reading import made_up


def _served(**offsets: Sequence[int] | range) -> ServedDataset:
    return ServedDataset(made_up("x", offsets))


def _packed(*sizes: int) -> bytes:
    return b"".join(size.to_bytes(4, "little") for size in sizes)


@pytest.mark.parametrize(
    ("first", "count", "offset", "sizes"),
    [(0, 1, 0, (20,)), (0, 3, 0, (20, 30, 17)), (1, 1, 20, (30,)), (2, 1, 50, (17,)), (1, 10**15, 20, (30, 17))],
)
def test_sizes_and_offset_are_those_of_the_index(first: int, count: int, offset: int, sizes: tuple[int, ...]) -> None:
    served = _served(a=(0, 99), b=(0, 20, 50, 67))
    expected = Sizes(offset=offset, sizes=_packed(*sizes))
    assert served.sizes(AskSizes(shard="b", first=first, count=count)) == expected


@pytest.mark.parametrize(("shard", "first"), [("c", 0), ("", 0), ("b", 2), ("b", 2**61), ("empty", 0)])
def test_what_is_not_here_has_no_sizes(shard: str, first: int) -> None:
    served = _served(b=(0, 20, 50), empty=(0,))
    assert served.sizes(AskSizes(shard=shard, first=first, count=5)) == Sizes(offset=0, sizes=b"")


def test_an_answer_has_its_limit_and_the_next_one_goes_on_from_there() -> None:
    served = _served(a=range(0, 20 * (RECORDS_PER_SIZES + 3), 20))
    begin = served.sizes(AskSizes(shard="a", first=0, count=2**61))
    assert begin == Sizes(offset=0, sizes=_packed(20) * RECORDS_PER_SIZES)
    rest = served.sizes(AskSizes(shard="a", first=RECORDS_PER_SIZES, count=2**61))
    assert rest.offset == 20 * RECORDS_PER_SIZES
    assert rest.sizes == _packed(20, 20)


def test_a_frame_too_long_for_four_bytes_does_not_look_like_a_short_one() -> None:
    longest = 2**32 - 1
    served = _served(a=(0, 20, 20 + longest, 20 + longest + 2**32 + 24))
    assert served.sizes(AskSizes(shard="a", first=0, count=3)).sizes == _packed(20, longest, longest)
