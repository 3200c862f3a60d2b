import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import ConfigError
from emlio.planner.choice.bit_index import BitIndex
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.choice.wanted import set_of_ids
from emlio_testing.planning import catalog_of


def _drawn(records: int, share: float) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.random.default_rng(records).random(records) < share)


@pytest.mark.parametrize("records", [1, 7, 8, 9, 511, 512, 513, 100_000])
@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_an_index_counts_and_selects(records: int, share: float) -> None:
    ids = _drawn(records, share)
    mask = np.zeros(records, np.bool_)
    mask[ids] = True
    index = BitIndex(np.packbits(mask, bitorder="little"))
    assert index.count == ids.size
    assert index.kth(np.arange(ids.size)).tolist() == ids.tolist()
    numbers = np.arange(records + 2000)
    assert index.before(numbers).tolist() == np.searchsorted(ids, numbers).tolist()
    assert np.flatnonzero(index.has(numbers)).tolist() == ids.tolist()


@pytest.mark.parametrize("share", [0.001, 0.3, 1.0])
def test_a_set_is_the_same_however_it_was_made(share: float) -> None:
    ids = _drawn(20_000, share)
    packed = np.zeros(20_000, np.bool_)
    packed[ids] = True
    bits = RecordSet.of_bits(np.packbits(packed, bitorder="little"))
    shuffled = set_of_ids(np.random.default_rng(1).permutation(ids).astype(np.int32))
    sent = RecordSet(shuffled.content)
    assert bits is not None
    assert len({bits, shuffled, sent, RecordSet.of_ids(ids)}) == 1
    assert str(sent) == f"records={sent.digest}:{ids.size}"
    for one in (bits, shuffled, sent):
        assert one.kth(np.arange(one.count)).tolist() == ids.tolist()
    assert len(sent.content) <= 1 + min(8 * ids.size, 20_000 // 8)


def test_no_bits_are_no_set() -> None:
    assert RecordSet.of_bits(np.zeros(100, np.uint8)) is None


@pytest.mark.parametrize("share", [0.01, 0.4])
def test_chosen_records_are_counted_by_shard(share: float) -> None:
    catalog = catalog_of(0, 100, 3000, 0, 1, 2899)
    ids = _drawn(6000, share)
    selected = RecordSet.of_ids(ids).select(catalog)
    shards = catalog.shards_of(ids)
    assert np.diff(selected.within.bases).tolist() == np.bincount(shards, minlength=6).tolist()
    assert selected.records(np.arange(ids.size), in_order=True).tolist() == ids.tolist()
    assert np.flatnonzero(selected.has(np.arange(6000))).tolist() == ids.tolist()


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([], "at least one whole number"),
        ([0.5], "at least one whole number, got float64"),
        ([[1]], "at least one whole number"),
        ([True], "at least one whole number, got bool"),
        ([3, -1, -2], r"in \[0, 1099511627776\), got -1 at position 1"),
        ([3, 2**41], r"got 2199023255552 at position 1"),
        ([5, 9, 1, 9, 5], "got 9 again at position 3"),
    ],
)
def test_wrong_ids_are_refused_and_the_first_one_is_named(ids: list[int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        set_of_ids(np.array(ids))


def test_an_id_beyond_the_dataset_is_named() -> None:
    with pytest.raises(ConfigError, match=r"in \[0, 100\), as the dataset has 100 records, got 117"):
        set_of_ids(np.array([200, 117, 99])).select(catalog_of(60, 40))


GOOD = RecordSet.of_ids(np.arange(100)).content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"b",
        b"l",
        b"x" + GOOD[1:],
        b"l" + bytes(7),
        GOOD + b"\0",  # the last byte must have a bit, or one set had two contents
        b"l" + np.array([3, 2], "<i8").tobytes(),
        b"l" + np.array([5, 5000], "<i8").tobytes() * 2,
        b"l" + np.array([-1, 5000], "<i8").tobytes(),
        b"l" + np.array([2**41], "<i8").tobytes(),
        b"l" + np.arange(100).astype("<i8").tobytes(),  # dense: must be bits
        b"b" + bytes(999) + b"\1",  # sparse: must be a list
    ],
    ids=range(12),
)
def test_bytes_that_are_no_set_are_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="a rising list or bits"):
        RecordSet(content)


def test_the_content_of_a_set_never_changes() -> None:
    dense, sparse = RecordSet.of_ids(np.array([0, 2, 9])), RecordSet.of_ids(np.array([1000]))
    assert (dense.content, sparse.content) == (b"b\x05\x02", b"l" + (1000).to_bytes(8, "little"))
    assert [len(digest) for digest in (dense.digest, sparse.digest)] == [32, 32]
