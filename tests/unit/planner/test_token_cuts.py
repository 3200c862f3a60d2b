"""The rules that cut a share into batches: the fewest, exactly so many, under the bound."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import ConfigError
from emlio.planner.tokens.cutting import Cutting
from emlio.planner.tokens.packed import Packed, first_fit
from emlio.planner.tokens.padded import Padded


def _lengths(count: int, seed: int = 3, most: int = 4096) -> npt.NDArray[np.int32]:
    drawn = np.exp(np.random.default_rng(seed).normal(np.log(200), 0.9, count))
    return np.clip(drawn, 1, most).astype(np.int32)


def _batches(cutting: Cutting) -> list[list[int]]:
    """The records of each batch."""
    return [cutting.records[cutting.batches == batch].tolist() for batch in range(int(cutting.batches.max()) + 1)]


def _fewest(lengths: list[int], bound: int) -> int:
    """The fewest batches of neighbours in sorted order, by trying all places to cut."""
    lengths = sorted(lengths)
    best = [0]
    for end in range(1, len(lengths) + 1):
        best.append(1 + min(best[begin] for begin in range(end) if (end - begin) * lengths[end - 1] <= bound))
    return best[-1]


def test_padded_needs_the_fewest_batches_that_there_can_be() -> None:
    shares = np.stack([_lengths(60, seed) for seed in range(20)])
    shares[3, 40:] = 0  # a share with fewer records
    shares[4, :] = 0  # and one without any
    needed = Padded(max_tokens=5000).needed(shares).tolist()
    assert needed == [_fewest([length for length in share if length], 5000) for share in shares.tolist()]
    assert Padded(max_tokens=5000).most(shares).tolist() == [60, 60, 60, 40, 0, *[60] * 15]


@pytest.mark.parametrize("more", [0, 1, 5, 100, 399])
def test_padded_cuts_into_exactly_so_many_batches_of_rising_length(more: int) -> None:
    cut, lengths = Padded(max_tokens=16384), _lengths(400)
    fewest = int(cut.needed(lengths[np.newaxis])[0])
    wanted = min(fewest + more, 400)
    batches = _batches(cut.cut(lengths, wanted))
    assert len(batches) == wanted
    assert sorted(record for batch in batches for record in batch) == list(range(400))
    assert all(len(batch) * int(lengths[batch].max()) <= 16384 for batch in batches)
    for shorter, longer in pairwise(batches):
        assert lengths[shorter].max() <= lengths[longer].min()


def test_padded_makes_batches_of_similar_cost() -> None:
    cut, lengths = Padded(max_tokens=16384), _lengths(2000)
    fewest = int(cut.needed(lengths[np.newaxis])[0])
    for wanted in (fewest, fewest + 3, fewest * 2):
        costs = [len(batch) * int(lengths[batch].max()) for batch in _batches(cut.cut(lengths, wanted))]
        assert max(costs) < 1.25 * sum(costs) / len(costs)


def test_padded_leaves_equal_records_in_their_order() -> None:
    cutting = Padded(max_tokens=10).cut(np.array([5, 3, 5, 3, 3], dtype=np.int32), 2)
    assert _batches(cutting) == [[1, 3, 4], [0, 2]]
    assert cutting.rows.tolist() == [0, 1, 2, 0, 1]


def test_padded_cuts_off_what_is_too_long_only_if_told() -> None:
    cutting = Padded(max_tokens=10, truncate=True).cut(np.array([4, 25], dtype=np.int32), 2)
    assert cutting.lengths.tolist() == [4, 10]
    assert Padded(max_tokens=10, truncate=True).accepted_tokens is None
    assert Padded(max_tokens=10).accepted_tokens == 10


def test_one_share_alone_is_packed_as_beside_others() -> None:
    shares = np.sort(np.stack([_lengths(300, seed, 1000) for seed in range(40)]), axis=1)[:, ::-1]
    together = first_fit(shares, 1000)
    assert np.array_equal(together, np.concatenate([first_fit(share[np.newaxis], 1000) for share in shares]))


def test_a_sequence_goes_into_the_first_row_that_has_room() -> None:
    falling = np.array([[7, 6, 4, 3, 3, 2, 1, 0]], dtype=np.int32)
    assert first_fit(falling, 10).tolist() == [[0, 1, 1, 0, 2, 2, 2, -1]]
    assert first_fit(np.zeros((2, 0), dtype=np.int32), 10).shape == (2, 0)


@pytest.mark.parametrize("side_by_side", [1, 30])
def test_packing_fills_rows_nearly_as_well_as_can_be(side_by_side: int) -> None:
    shares = np.sort(np.stack([_lengths(1000, seed) for seed in range(side_by_side)]), axis=1)[:, ::-1]
    rows = first_fit(shares, 4096).max(axis=1) + 1
    assert (rows <= np.ceil(shares.sum(axis=1) / 4096) + 1).all()


def _check_rows(cutting: Cutting, cut: Packed) -> None:
    """Pieces lie one after another from the left, and end inside the row."""
    keys = list(zip(cutting.batches.tolist(), cutting.rows.tolist(), cutting.columns.tolist(), strict=True))
    length_of = dict(zip(keys, cutting.lengths.tolist(), strict=True))
    assert len(length_of) == len(keys)
    for batch, row, column in keys:
        assert 0 <= row < cut.rows
        assert column + length_of[batch, row, column] <= cut.row_tokens
        if column:
            assert any(
                (b, r) == (batch, row) and c + length == column for (b, r, c), length in length_of.items() if c < column
            )


@pytest.mark.parametrize(("rows", "more"), [(1, 0), (4, 0), (4, 2), (4, 40), (8, 7)])
def test_packed_cuts_into_exactly_so_many_batches_and_loses_nothing(rows: int, more: int) -> None:
    cut, lengths = Packed(row_tokens=1000, rows=rows), _lengths(150)
    wanted = int(cut.needed(lengths[np.newaxis])[0]) + more
    cutting = cut.cut(lengths, wanted)
    assert sorted(set(cutting.batches.tolist())) == list(range(wanted))
    assert np.bincount(cutting.records, weights=cutting.lengths).tolist() == lengths.tolist()
    assert len(cutting.records) == int(cut.most(lengths[np.newaxis])[0])
    _check_rows(cutting, cut)


def test_packed_cuts_what_is_longer_than_a_row_into_rows_and_a_rest() -> None:
    cut = Packed(row_tokens=10, rows=2)
    lengths = np.array([25, 10, 4], dtype=np.int32)
    assert cut.needed(lengths[np.newaxis]).tolist() == [2]
    assert cut.most(lengths[np.newaxis]).tolist() == [5]
    cutting = cut.cut(lengths, 2)
    assert sorted(zip(cutting.records.tolist(), cutting.lengths.tolist(), strict=True)) == [
        (0, 5),
        (0, 10),
        (0, 10),
        (1, 10),
        (2, 4),
    ]
    assert cutting.columns.tolist().count(0) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: Padded(max_tokens=0),
        lambda: Padded(max_tokens=2**31),
        lambda: Packed(row_tokens=0, rows=1),
        lambda: Packed(row_tokens=1, rows=0),
    ],
)
def test_an_impossible_rule_is_refused(make) -> None:  # noqa: ANN001 - a lambda
    with pytest.raises(ConfigError, match=r"must be in \[1, 2\*\*31\), got"):
        make()
