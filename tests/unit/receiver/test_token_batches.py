"""From token records to arrays: lengths from sizes, padding, packing, collation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.planner.plan import Plan
from emlio.planner.spec import PlanSpec
from emlio.planner.tokens.epoch import TokenBatch, TokenEpoch
from emlio.planner.tokens.lengths import padding_waste, token_lengths
from emlio.planner.tokens.packed import Packed
from emlio.planner.tokens.padded import Padded
from emlio.planner.tokens.plan import TokenPlan
from emlio.receiver.tokens.batches import TokenAssembler
from emlio_testing.planning import catalog_of

_CATALOG = catalog_of(2, 1)


def _batch(height: int, width: int, pieces: Sequence[tuple[int, int, int, int, int]]) -> TokenBatch:
    """Pieces: record, begin, end, row, column."""
    columns = np.array(pieces, dtype=np.int64).reshape(-1, 5).T
    return TokenBatch(
        height=height,
        width=width,
        records=columns[0],
        begins=columns[1],
        ends=columns[2],
        rows=columns[3],
        columns=columns[4],
    )


_RECORDS = [np.arange(first, first + count, dtype=np.int32) for first, count in ((10, 3), (20, 5), (30, 0), (40, 1))]
_PADDED = _batch(3, 5, [(3, 0, 1, 0, 0), (0, 0, 3, 1, 0), (1, 0, 5, 2, 0)])
_PACKED_BATCH = _batch(3, 6, [(0, 1, 3, 0, 0), (2, 0, 0, 0, 2), (3, 0, 1, 0, 2), (1, 0, 5, 2, 0), (0, 0, 1, 2, 5)])


def test_lengths_follow_from_the_sizes_of_frames() -> None:
    assert token_lengths(_CATALOG, np.array([16, 24, 16 + 400]), 4).tolist() == [0, 2, 100]
    assert token_lengths(_CATALOG, np.array([16, 24, 16 + 400]), 8).tolist() == [0, 1, 50]


@pytest.mark.parametrize(
    ("size", "said"), [(16 + 6, "got 6 bytes"), (15, "got -1 bytes"), (16 + 2**33, "got 8589934592")]
)
def test_a_record_that_is_no_whole_tokens_is_named(size: int, said: str) -> None:
    with pytest.raises(
        DatasetError, match=f"record 0 of shard s000001: its size must be a multiple of 4 bytes.*{said}"
    ):
        token_lengths(_CATALOG, np.array([24, 24, size]), 4)


def test_sizes_must_be_those_of_the_dataset() -> None:
    with pytest.raises(DatasetError, match="one size for each of 3 records"):
        token_lengths(_CATALOG, np.array([24, 24]), 4)
    with pytest.raises(ConfigError, match="token_bytes must be 1, 2, 4 or 8, got 3"):
        token_lengths(_CATALOG, np.array([24, 24, 24]), 3)


def test_waste_is_the_share_of_places_without_a_token() -> None:
    lengths = np.array([4, 1, 3], dtype=np.int32)
    assert padding_waste(lengths, [np.array([0, 1]), np.array([2])]) == pytest.approx(1 - 8 / 11)
    assert padding_waste(lengths, []) == 0.0


@pytest.mark.parametrize("tokens", ["int32", "int64"])
def test_records_are_little_endian_arrays_also_where_they_are_not_aligned(tokens: str) -> None:
    array = np.array([1, -2, 3 << 20], dtype=np.dtype(tokens).newbyteorder("<"))
    record = memoryview(b"x" + array.tobytes())[1:]
    assembler = TokenAssembler(tokens=tokens, packed=False)
    assert assembler.decode(record).tolist() == [1, -2, 3 << 20]
    made = assembler([assembler.decode(record)], _batch(1, 3, [(0, 0, 3, 0, 0)]))
    assert made["tokens"].dtype == np.dtype(tokens)
    assert made["tokens"].tolist() == [[1, -2, 3 << 20]]
    with pytest.raises(DatasetError, match=f"a multiple of {assembler.token_bytes} bytes .*got 3 bytes"):
        assembler.decode(record[:3])


@pytest.mark.parametrize("stored", ["uint8", "uint16", "int16", "uint32", "int64"])
@pytest.mark.parametrize("tokens", ["int32", "int64"])
def test_records_of_other_types_become_the_types_that_embeddings_take(stored: str, tokens: str) -> None:
    largest = min(np.iinfo(stored).max, np.iinfo(tokens).max)
    record = memoryview(np.array([1, largest], np.dtype(stored).newbyteorder("<")).tobytes())
    assembler = TokenAssembler(tokens=tokens, packed=False, stored=stored)
    made = assembler([assembler.decode(record)], _batch(1, 2, [(0, 0, 2, 0, 0)]))
    assert (made["tokens"].dtype, made["tokens"].tolist()) == (np.dtype(tokens), [[1, largest]])


@pytest.mark.parametrize(("stored", "token"), [("uint32", 2**31), ("int64", 2**31), ("int64", -(2**31) - 1)])
def test_a_token_that_does_not_fit_is_an_error_and_no_other_token(stored: str, token: int) -> None:
    record = memoryview(np.array([1, token, 2], np.dtype(stored).newbyteorder("<")).tobytes())
    with pytest.raises(DatasetError, match=f"tokens must fit int32, the type of the batches, got {token}"):
        TokenAssembler(tokens="int32", packed=False, stored=stored).decode(record)
    assert TokenAssembler(tokens="int64", packed=False, stored=stored).decode(record).tolist() == [1, token, 2]


def test_the_recipe_masks_padding_and_the_first_token_of_each_packed_sequence() -> None:
    made = TokenAssembler(tokens="int64", packed=True, stored="int32", recipe="causal", pad_id=7)(
        _RECORDS, _PACKED_BATCH, {"__id__": np.array([5, 8, 7])}
    )
    assert made["input_ids"].tolist() == [[11, 12, 40, 7, 7, 7], [7] * 6, [20, 21, 22, 23, 24, 10]]
    assert made["labels"].tolist() == [[-100, 12, -100, *[-100] * 3], [-100] * 6, [-100, 21, 22, 23, 24, -100]]
    assert made["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0], [0] * 6, [1] * 6]
    assert made["position_ids"].tolist() == [[0, 1, 0, 0, 0, 0], [0] * 6, [0, 1, 2, 3, 4, 0]]
    assert made["segments"].tolist() == [[1, 1, 2, 0, 0, 0], [0] * 6, [1, 1, 1, 1, 1, 2]]
    assert "__id__" in made
    assert {made[name].dtype for name in ("input_ids", "labels", "attention_mask", "position_ids")} == {
        np.dtype(np.int64)
    }


def test_the_recipe_of_padded_batches_has_the_same_rules() -> None:
    made = TokenAssembler(tokens="int32", packed=False, recipe="causal")(_RECORDS, _PADDED)
    assert made["input_ids"].dtype == np.int32
    assert made["labels"].tolist() == [[-100] * 5, [-100, 11, 12, -100, -100], [-100, 21, 22, 23, 24]]
    assert made["labels"].dtype == np.int64, "as losses of PyTorch want them"
    assert made["attention_mask"].tolist() == [[1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1] * 5]
    assert made["position_ids"].tolist() == [[0] * 5, [0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]
    assert "lengths" not in made


def test_a_padded_batch_has_a_row_for_each_record() -> None:
    made = TokenAssembler(tokens="int32", packed=False, pad_id=-1)(_RECORDS, _PADDED, {"__id__": np.array([8, 5, 6])})
    assert made["tokens"].tolist() == [[40, -1, -1, -1, -1], [10, 11, 12, -1, -1], [20, 21, 22, 23, 24]]
    assert made["lengths"].tolist() == [1, 3, 5]
    assert made["__id__"].tolist() == [8, 5, 6]


def test_a_packed_batch_says_which_sequence_and_position_each_token_has() -> None:
    made = TokenAssembler(tokens="int32", packed=True)(_RECORDS, _PACKED_BATCH)
    assert made["tokens"].tolist() == [[11, 12, 40, 0, 0, 0], [0] * 6, [20, 21, 22, 23, 24, 10]]
    assert made["segments"].tolist() == [[1, 1, 2, 0, 0, 0], [0] * 6, [1, 1, 1, 1, 1, 2]]
    assert made["positions"].tolist() == [[0, 1, 0, 0, 0, 0], [0] * 6, [0, 1, 2, 3, 4, 0]]
    assert {array.dtype for name, array in made.items() if name != "tokens"} == {np.dtype(np.int32)}


def test_a_collate_fn_gets_arrays_that_may_be_written_and_kept() -> None:
    def collate(arrays: Sequence[npt.NDArray[np.int32]]) -> list[list[int]]:
        for array in arrays:
            array += 1
        return [array.tolist() for array in arrays]

    made = TokenAssembler(tokens="int32", packed=False, collate_fn=collate)(_RECORDS, _PADDED)
    assert made == [[41], [11, 12, 13], [21, 22, 23, 24, 25]]
    assert _RECORDS[0].tolist() == [10, 11, 12]


def test_a_record_that_is_skipped_leaves_padding() -> None:
    records = [None, *_RECORDS[1:]]
    made = TokenAssembler(tokens="int32", packed=False)(records, _PADDED)
    assert made["lengths"].tolist() == [1, 0, 5]
    assert made["tokens"][1].tolist() == [0] * 5
    packed = TokenAssembler(tokens="int32", packed=True)(records, _PACKED_BATCH)
    assert packed["segments"].tolist() == [[0, 0, 1, 0, 0, 0], [0] * 6, [1, 1, 1, 1, 1, 0]]
    assert packed["tokens"][0].tolist() == [0, 0, 40, 0, 0, 0]
    collated: Any = TokenAssembler(tokens="int32", packed=False, collate_fn=len)(records, _PADDED)
    assert collated == 2
    nothing = TokenAssembler(tokens="int32", packed=False)([None] * 4, _PADDED)
    assert nothing["tokens"].tolist() == [[0] * 5] * 3


def test_a_record_shorter_than_its_index_said_is_an_error() -> None:
    with pytest.raises(DatasetError, match=r"at least 5 .*got 3"):
        TokenAssembler(tokens="int32", packed=False)([_RECORDS[0]] * 4, _PADDED)


def test_arrays_become_tensors_where_asked() -> None:
    made = TokenAssembler(tokens="int32", packed=False, to_tensor=lambda array: ("tensor", array.shape))(
        _RECORDS, _PADDED
    )
    assert made == {"tokens": ("tensor", (3, 5)), "lengths": ("tensor", (3,))}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"packed": True, "collate_fn": len}, "cannot be used with packing"),
        ({"recipe": "causal", "collate_fn": len}, "cannot be used with a recipe"),
    ],
)
def test_arguments_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TokenAssembler(**({"tokens": "int32", "packed": False} | options))


def _all(epoch: TokenEpoch, records: Sequence[npt.NDArray[np.int64]], packed: bool) -> list[dict[str, Any]]:
    assembler = TokenAssembler(tokens="int64", packed=packed)
    shares = [epoch.share(rank, epoch.group(step)) for step in range(epoch.steps) for rank in range(3)]
    numbers = [epoch.step_in_group(step) for step in range(epoch.steps) for _ in range(3)]
    return [
        assembler([records[record] for record in share.ids], share.batches[number])
        for share, number in zip(shares, numbers, strict=True)
    ]


@pytest.mark.parametrize("cut", [Padded(max_tokens=300), Packed(row_tokens=64, rows=3)])
def test_a_whole_epoch_hands_out_every_record_whole_and_never_mixed(cut: Padded | Packed) -> None:
    lengths = np.random.default_rng(5).integers(1, 200, 150).astype(np.int32)
    # A token names its record and its place in it.
    records = [1000 * number + np.arange(length, dtype=np.int64) for number, length in enumerate(lengths)]
    catalog = catalog_of(150)
    epoch = TokenPlan(Plan(catalog, PlanSpec(batch_size=20, world_size=3)), cut, lengths).epoch(0)
    packed = isinstance(cut, Packed)
    assert epoch.repeated == 0
    pieces: dict[int, list[int]] = {number: [] for number in range(150)}
    for made in _all(epoch, records, packed):
        for row, tokens in enumerate(made["tokens"]):
            segments = made["segments"][row] if packed else np.arange(len(tokens)) < made["lengths"][row]
            for segment in range(1, int(segments.max()) + 1):
                piece = tokens[segments == segment]
                assert (np.diff(piece) == 1).all()
                assert len(set((piece // 1000).tolist())) == 1
                pieces[int(piece[0]) // 1000] += piece.tolist()
                if packed:
                    assert made["positions"][row][segments == segment].tolist() == list(range(len(piece)))
    assert all(sorted(pieces[number]) == records[number].tolist() for number in range(150))
