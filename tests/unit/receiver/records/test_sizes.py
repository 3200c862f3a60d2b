"""The sizes of all records, gathered in one round trip, and where one record lies."""

import numpy as np
import pytest

from emlio.errors import DatasetError, PeerLostError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.receiver.records.bad_records import RecordPlace
from emlio.receiver.records.sizes import NO_SIZES, RecordSizes, gather_sizes, locate_record
from emlio.receiver.threads.promise import Promise
from emlio.wire.limits import RECORDS_PER_SIZES

_LONG_NS = 20_000_000_000


def _catalog(*records: int) -> Catalog:
    return Catalog(
        shards=tuple(
            ShardEntry(name=f"s{number}", records=count, size_bytes=count, digest=f"d{number}")
            for number, count in enumerate(records)
        )
    )


class _Daemons:
    """Answer questions from given sizes, in the order they came or when told."""

    def __init__(self, *sizes: "np.ndarray[tuple[int], np.dtype[np.int64]]", silent: bool = False) -> None:
        self.asked: list[tuple[int, int, int]] = []
        self._sizes = sizes
        self._silent = silent
        self._open: list[tuple[Promise, RecordSizes]] = []

    def ask(self, shard: int, first: int, count: int) -> Promise:
        self.asked.append((shard, first, count))
        sizes = self._sizes[shard]
        answer = RecordSizes(offset=int(sizes[:first].sum()), sizes=sizes[first : first + count])
        future: Promise = Promise()
        if self._silent:
            self._open.append((future, answer))
        else:
            future.set_result(answer)
        return future


def _sizes(count: int, seed: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.random.default_rng(seed).integers(16, 1000, count)


def test_sizes_stand_at_the_global_ids_of_their_records() -> None:
    parts = [_sizes(3, 1), _sizes(1, 2), _sizes(5, 3)]
    daemons = _Daemons(*parts)
    assert gather_sizes(_catalog(3, 1, 5), daemons.ask, _LONG_NS).tolist() == np.concatenate(parts).tolist()
    assert daemons.asked == [(0, 0, 3), (1, 0, 1), (2, 0, 5)]


def test_a_shard_without_records_is_not_asked_for() -> None:
    daemons = _Daemons(_sizes(2, 1), _sizes(0, 2), _sizes(1, 3))
    assert len(gather_sizes(_catalog(2, 0, 1), daemons.ask, _LONG_NS)) == 3
    assert [shard for shard, _, _ in daemons.asked] == [0, 2]


def test_a_large_shard_is_asked_for_in_parts() -> None:
    count = 2 * RECORDS_PER_SIZES + 7
    sizes = _sizes(count, 1)
    daemons = _Daemons(sizes)
    assert np.array_equal(gather_sizes(_catalog(count), daemons.ask, _LONG_NS), sizes)
    assert [asked for _, _, asked in daemons.asked] == [RECORDS_PER_SIZES, RECORDS_PER_SIZES, 7]


def test_all_is_asked_before_the_first_answer_is_waited_for() -> None:
    daemons = _Daemons(_sizes(3, 1), _sizes(4, 2), silent=True)
    with pytest.raises(PeerLostError, match="the records of shard s0 did not arrive within 1 ms"):
        gather_sizes(_catalog(3, 4), daemons.ask, 1_000_000)
    assert len(daemons.asked) == 2


@pytest.mark.parametrize("told", [0, 3])
def test_who_does_not_know_a_shard_it_said_it_holds_is_not_believed(told: int) -> None:
    daemons = _Daemons(_sizes(2, 1), _sizes(told, 2))
    with pytest.raises(DatasetError, match=f"shard s1 must send the sizes of its records 0 to 3, got {told}"):
        gather_sizes(_catalog(2, 4), daemons.ask, _LONG_NS)


def test_a_record_lies_where_its_shards_index_has_it() -> None:
    second = np.array([100, 20, 30], np.int64)
    daemons = _Daemons(_sizes(5, 1), second)
    place = locate_record(_catalog(5, 3), daemons.ask, 7)
    assert place == RecordPlace(shard="s1", record=2, offset=120)
    assert daemons.asked == [(1, 2, 1)]


def test_a_record_nobody_can_find_has_no_offset() -> None:
    def nobody(shard: int, first: int, count: int) -> Promise:
        future: Promise = Promise()
        future.set_result(NO_SIZES)
        return future

    assert locate_record(_catalog(5), nobody, 3) == RecordPlace(shard="s0", record=3, offset=-1)


def test_an_error_is_not_held_up_for_long_by_a_daemon_that_does_not_say_where_a_record_lies() -> None:
    daemons = _Daemons(_sizes(5, 1), silent=True)
    assert locate_record(_catalog(5), daemons.ask, 3) == RecordPlace(shard="s0", record=3, offset=-1)


def test_the_first_record_lies_at_byte_0_which_is_not_the_same_as_unknown() -> None:
    assert RecordSizes(offset=0, sizes=np.array([50], np.int64)).offset_if_known == 0
    assert NO_SIZES.offset_if_known == -1
