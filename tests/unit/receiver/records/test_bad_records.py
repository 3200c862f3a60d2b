"""What becomes of bad records: which are taken in their place, and the error that names them."""

import numpy as np
import pytest

from emlio.errors import CorruptRecordError
from emlio.receiver.records.bad_records import BadRecordPolicy, RecordPlace

_IDS = np.array([70, 50, 90, 10, 30])


class _Places:
    """Knows where records lie, and notes which it was asked for."""

    def __init__(self, offset: int = 4000) -> None:
        self.asked: list[int] = []
        self._offset = offset

    def __call__(self, record: int) -> RecordPlace:
        self.asked.append(record)
        return RecordPlace(shard=f"shard-{record // 50}", record=record % 50, offset=self._offset + record)


@pytest.mark.parametrize(
    ("bad", "left"), [([0], [1, 2, 3, 4]), ([4, 0], [1, 2, 3]), ([1, 2, 3], [0, 4]), ([0, 1, 2, 3], [4])]
)
def test_skipping_leaves_the_good_ones_in_their_order(bad: list[int], left: list[int]) -> None:
    places = BadRecordPolicy("skip", _Places()).settle(_IDS, dict.fromkeys(bad, "is bad"))
    assert places.tolist() == left


@pytest.mark.parametrize(
    ("bad", "taken"),
    [
        ([0], [1, 1, 2, 3, 4]),
        ([4, 0], [1, 1, 2, 3, 2]),
        ([1, 2, 3], [0, 0, 4, 0, 4]),
        ([0, 1, 2, 3], [4, 4, 4, 4, 4]),
    ],
)
def test_replacing_takes_the_good_ones_in_turn_and_keeps_the_number(bad: list[int], taken: list[int]) -> None:
    places = BadRecordPolicy("replace", _Places()).settle(_IDS, dict.fromkeys(bad, "is bad"))
    assert places.tolist() == taken
    again = BadRecordPolicy("replace", _Places()).settle(_IDS, dict.fromkeys(sorted(bad), "is bad otherwise"))
    assert again.tolist() == taken  # all ranks and all runs choose alike


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_where_a_record_lies_is_not_asked_for_unless_there_is_an_error(on_error: str) -> None:
    places = _Places()
    BadRecordPolicy(on_error, places).settle(_IDS, {2: "is bad"})
    assert places.asked == []


def test_the_error_names_the_first_bad_record_of_the_batch_and_counts_the_others() -> None:
    places = _Places()
    with pytest.raises(CorruptRecordError) as raised:
        BadRecordPolicy("raise", places).settle(_IDS, {3: "is third", 1: "is first", 4: "is fourth"})
    error = raised.value
    assert (error.shard, error.record, error.offset) == ("shard-1", 0, 4050)
    assert str(error) == (
        "record 0 of shard shard-1 at byte 4050: is first (2 more in the same batch); "
        'to leave out bad records, pass Recovery(on_error="skip") or "replace"'
    )
    assert places.asked == [50]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_when_nothing_is_left_the_error_does_not_advise_what_was_done_already(on_error: str) -> None:
    with pytest.raises(CorruptRecordError, match="all 5 records of the batch are bad") as raised:
        BadRecordPolicy(on_error, _Places()).settle(_IDS, dict.fromkeys(range(5), "is bad"))
    assert "on_error" not in str(raised.value)


def test_an_offset_nobody_can_tell_is_not_spoken_of() -> None:
    policy = BadRecordPolicy("raise", _Places(offset=-81))
    assert policy.describe(80) == "record 30 of shard shard-1"
    with pytest.raises(CorruptRecordError, match="record 30 of shard shard-1: is bad;") as raised:
        policy.settle(np.array([80]), {0: "is bad"})
    assert raised.value.offset == -1


def test_where_records_lie_may_become_known_later() -> None:
    policy = BadRecordPolicy("raise")
    with pytest.raises(AssertionError, match="before there was a plan"):
        policy.describe(3)
    policy.locate_by(_Places())
    assert policy.describe(3) == "record 3 of shard shard-0 at byte 4003"
