"""From pieces to what the user asked for: views, columns, ids, transforms, collation, bad records."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, CorruptRecordError
from emlio.example.columns import Piece
from emlio.example.encode import encode_example
from emlio.formats.contents import Contents, FieldType
from emlio.receiver.batches.assemble import Assembler
from emlio.receiver.batches.makers import ColumnMaker, SampleMaker
from emlio.receiver.placement.reorder import BadRecord, WholeBatch
from emlio.receiver.records.bad_records import BadRecordPolicy, RecordPlace
from emlio.receiver.records.mixture import MixedContents

_IDS = [50, 40, 30, 20, 10]


def _piece(records: Sequence[bytes], slots: Sequence[int]) -> Piece:
    ends = np.cumsum([len(record) for record in records]).astype(np.int64)
    starts = ends - np.array([len(record) for record in records], np.int64)
    return Piece(
        buffer=memoryview(b"".join(records)), starts=starts, ends=ends, slots=np.array(slots, np.int64).reshape(-1)
    )


def _batch(records: Sequence[bytes], pieces: Sequence[Sequence[int]], bad: Sequence[int] = ()) -> WholeBatch:
    """A batch whose records lie in pieces, each with these slots; the bad ones lie in none."""
    return WholeBatch(
        epoch=0,
        step=0,
        count=len(records),
        ids=np.array(_IDS[: len(records)]),
        pieces=[_piece([records[slot] for slot in slots], slots) for slots in pieces],
        bad=[
            BadRecord(slot=slot, shard=f"shard{slot}", record=100 + slot, reason="its CRC32C is wrong") for slot in bad
        ],
    )


def _locate(record: int) -> RecordPlace:
    """Each batch of these tests has one record of each shard."""
    slot = _IDS.index(record)
    return RecordPlace(shard=f"shard{slot}", record=100 + slot, offset=1000 * slot)


def _as_it_is(value: Any) -> Any:
    return value


def _assembler(
    transform: Callable[[Any], Any] | None = None, threads: int = 1, **options: Any
) -> Callable[[WholeBatch], Any]:
    policy = BadRecordPolicy(options.pop("on_error", "raise"), _locate)
    usual: dict[str, Any] = {
        "raw": True,
        "fields": None,
        "ids": True,
        "seeder": None,
        "policy": policy,
        "to_tensor": None,
        "collate_fn": None,
    }
    assembler = Assembler(**(usual | options))
    if transform is None:
        return lambda batch: ColumnMaker(assembler, _as_it_is, ahead=0).make(batch).value

    def make(batch: WholeBatch) -> Any:
        with closing(
            SampleMaker(assembler, transform, policy, _as_it_is, threads=threads, batch_size=batch.count)
        ) as maker:
            return maker.make(batch).result(20).value

    return make


_RAW = [b"zero", b"one", b"", b"three", b"four"]
_EXAMPLES = [
    encode_example({"label": [number], "pair": [number, -number], "name": [b"n%d" % number]}) for number in range(5)
]


@pytest.mark.parametrize(
    "pieces", [[[0, 1, 2, 3, 4]], [[0, 2, 4], [1, 3]], [[4], [3], [2], [1], [0]], [[3, 4], [0, 1, 2]]]
)
def test_raw_records_come_in_the_batchs_order_without_a_copy(pieces: list[list[int]]) -> None:
    batch = _batch(_RAW, pieces)
    made = _assembler()(batch)
    assert [bytes(record) for record in made["record"]] == _RAW
    assert made["__id__"].tolist() == _IDS
    assert all(any(record.obj is piece.buffer.obj for piece in batch.pieces) for record in made["record"])


@pytest.mark.parametrize("pieces", [[[0, 1, 2, 3, 4]], [[0, 2, 4], [1, 3]]])
def test_features_come_as_columns_in_the_batchs_order(pieces: list[list[int]]) -> None:
    made = _assembler(raw=False)(_batch(_EXAMPLES, pieces))
    assert made["label"].tolist() == [0, 1, 2, 3, 4]
    assert made["pair"].tolist() == [[number, -number] for number in range(5)]
    assert [bytes(name) for name in made["name"]] == [b"n0", b"n1", b"n2", b"n3", b"n4"]
    assert made["__id__"].tolist() == _IDS


def test_only_the_fields_wanted_come_and_ids_only_if_wanted() -> None:
    made = _assembler(raw=False, fields=["name", "label"], ids=False)(_batch(_EXAMPLES, [[0, 1, 2, 3, 4]]))
    assert list(made) == ["name", "label"]


@dataclass(frozen=True, slots=True)
class _Tensor:
    """What stands in for a tensor: it shares the array."""

    array: Any


def test_arrays_become_tensors_where_that_is_wanted_and_bytes_never() -> None:
    made = _assembler(raw=False, to_tensor=_Tensor)(_batch(_EXAMPLES, [[0, 1, 2, 3, 4]]))
    assert isinstance(made["label"], _Tensor)
    assert isinstance(made["__id__"], _Tensor)
    assert isinstance(made["name"], list)


def test_a_transform_sees_one_sample_after_the_other_and_its_results_are_stacked() -> None:
    seen: list[int] = []

    def transform(sample: dict[str, Any]) -> tuple[Any, int]:
        seen.append(int(sample["label"]))
        return sample["pair"] * 10, int(sample["__id__"])

    pairs, ids = _assembler(raw=False, transform=transform)(_batch(_EXAMPLES, [[0, 2, 4], [1, 3]]))
    assert seen == [0, 1, 2, 3, 4]
    assert pairs.tolist() == [[10 * number, -10 * number] for number in range(5)]
    assert ids.tolist() == _IDS


def test_a_collate_fn_makes_the_batch_with_and_without_a_transform() -> None:
    def collate(samples: Sequence[Any]) -> list[Any]:
        return [len(samples), *samples]

    plain = _assembler(raw=False, fields=["label"], ids=False, collate_fn=collate)(_batch(_EXAMPLES, [[0, 1, 2, 3, 4]]))
    assert plain == [5, *({"label": number} for number in range(5))]
    both = _assembler(raw=False, transform=lambda sample: int(sample["label"]) * 2, collate_fn=collate)
    assert both(_batch(_EXAMPLES, [[0, 1, 2, 3, 4]])) == [5, 0, 2, 4, 6, 8]


@pytest.mark.parametrize("transform", [None, lambda sample: (sample["label"], 0)])
def test_an_error_of_a_collate_fn_notes_what_it_was_called_with(transform: Any) -> None:
    def collate(samples: list[Any]) -> Any:
        return samples["label"]  # type: ignore[call-overload]  # as users write it who expect a batch

    with pytest.raises(TypeError, match="list indices must be") as raised:
        _assembler(raw=False, transform=transform, collate_fn=collate)(_batch(_EXAMPLES, [[0, 1, 2, 3, 4]]))
    first = "dict of 'label', 'name', 'pair', '__id__'" if transform is None else "tuple"
    assert raised.value.__notes__ == [f"in collate_fn, which gets a list of samples: here 5, the first a {first}"]


def test_the_user_decides_what_a_transform_of_a_dict_looks_like() -> None:
    keep: Callable[[Any], Any] = lambda sample: {"x": sample["label"]}  # noqa: E731  # as users write it
    assert _assembler(raw=False, transform=keep)(_batch(_EXAMPLES, [[0, 1, 2, 3, 4]]))["x"].tolist() == [0, 1, 2, 3, 4]


# ---- bad records --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[[0, 2, 4]], [[4], [0, 2]], [[0], [2], [4]]])
def test_skipping_closes_the_gaps(pieces: list[list[int]]) -> None:
    assembler = _assembler(on_error="skip")
    made = assembler(_batch(_RAW, pieces, bad=[1, 3]))
    assert [bytes(record) for record in made["record"]] == [b"zero", b"", b"four"]
    assert made["__id__"].tolist() == [50, 30, 10]


@pytest.mark.parametrize("pieces", [[[0, 2, 4]], [[4], [0, 2]]])
def test_replacing_keeps_the_size_and_says_whose_record_it_is(pieces: list[list[int]]) -> None:
    assembler = _assembler(on_error="replace")
    for _ in range(2):
        made = assembler(_batch(_RAW, pieces, bad=[3, 1]))
        assert [bytes(record) for record in made["record"]] == [b"zero", b"zero", b"", b"", b"four"]
        assert made["__id__"].tolist() == [50, 50, 30, 30, 10]


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_batch_of_which_nothing_is_left_is_an_error_whatever_the_policy(on_error: str) -> None:
    with pytest.raises(CorruptRecordError, match="4 more in the same batch"):
        _assembler(on_error=on_error)(_batch(_RAW, [], bad=[0, 1, 2, 3, 4]))


def test_the_batch_as_it_came_is_not_changed_by_a_policy() -> None:
    batch = _batch(_RAW, [[0, 2, 4]], bad=[1, 3])
    for on_error in ("skip", "replace"):
        _assembler(on_error=on_error)(batch)
    assert batch.ids.tolist() == _IDS
    assert len(batch.pieces) == 1
    assert batch.pieces[0].slots.tolist() == [0, 2, 4]


# ---- records that lack a feature, or have one of another kind ------------------------------------------------------

_UNLIKE = [
    _EXAMPLES[0],
    encode_example({"pair": [1, -1], "name": [b"n1"]}),
    _EXAMPLES[2],
    encode_example({"label": [b"three"], "pair": [3, -3], "name": [b"n3"]}),
    _EXAMPLES[4],
]

_BROKEN = [b"\xff" if number % 2 else record for number, record in enumerate(_EXAMPLES)]


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("pieces", [[[0, 1, 2, 3, 4]], [[3, 1], [4, 0, 2]]])
def test_a_feature_that_no_record_has_is_named_once(
    pieces: list[list[int]], on_error: str, caplog: pytest.LogCaptureFixture
) -> None:
    make = _assembler(raw=False, fields=["label", "lable"], on_error=on_error)
    for _ in range(2):
        made = make(_batch(_EXAMPLES, pieces))
        assert made["lable"] == [None] * 5
    (record,) = caplog.records
    assert record.getMessage() == (
        "no record of the first batch has the requested column 'lable', which is None there; record 100 of shard shard0 "
        "at byte 0 has 'label', 'name', 'pair'; did you mean 'label'?"
    )


def test_the_warning_needs_no_other_feature_to_be_readable(caplog: pytest.LogCaptureFixture) -> None:
    record = encode_example({"label": 1, "depth/data": b"1234", "depth/dtype": b"no type"})
    made = _assembler(raw=False, fields=["label", "lable"])(_batch([record], [[0]]))
    assert (made["label"].tolist(), made["lable"]) == ([1], [None])
    assert "the requested column 'lable'" in caplog.text


@pytest.mark.parametrize("fields", [None, ["label", "pair"]])
@pytest.mark.parametrize("pieces", [[[0, 1, 2, 3, 4]], [[3, 1], [4, 0, 2]]])
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_record_is_judged_by_itself_and_what_it_lacks_is_none(
    on_error: str, pieces: list[list[int]], fields: list[str] | None
) -> None:
    made = _assembler(raw=False, fields=fields, on_error=on_error)(_batch(_UNLIKE, pieces))
    assert made["label"] == [0, None, 2, [b"three"][0], 4]
    assert made["pair"].tolist() == [[number, -number] for number in range(5)]
    assert made["__id__"].tolist() == _IDS
    for number in range(5):
        alone = _assembler(raw=False, fields=fields, ids=False)(_batch([_UNLIKE[number]], [[0]]))
        assert alone.get("label", [None])[0] == made["label"][number]


def test_tensors_and_transforms_get_none_where_a_record_lacks_a_feature() -> None:
    ragged = [
        encode_example({"boxes": list(range(number + 1))} if number % 2 else {"n": number}) for number in range(5)
    ]
    made = _assembler(raw=False, to_tensor=_Tensor)(_batch(ragged, [[0, 1, 2, 3, 4]]))
    assert [getattr(one, "array", None) is not None for one in made["boxes"]] == [False, True, False, True, False]
    seen = _assembler(raw=False, to_tensor=_Tensor, transform=lambda sample: {"b": sample["boxes"], "n": sample["n"]})
    made = seen(_batch(ragged, [[0, 1, 2, 3, 4]]))
    assert made["n"] == [0, None, 2, None, 4]
    assert [one is None for one in made["b"]] == [True, False, True, False, True]


def test_a_column_of_the_schema_is_in_every_batch() -> None:
    policy = BadRecordPolicy("raise", _locate)
    assembler = Assembler(raw=False, fields=None, ids=True, seeder=None, policy=policy, to_tensor=None, collate_fn=None)
    schema = {"rare": FieldType("int64"), "label": FieldType("int64")}
    assembler.know(Contents(format="tfrecord", schema=schema))
    assert assembler.decode(_batch(_EXAMPLES, [[0, 1, 2, 3, 4]])).columns["rare"] == [None] * 5


def test_a_column_that_the_loader_would_add_is_not_overwritten() -> None:
    records = [encode_example({"__id__": number}) for number in range(5)]
    policy = BadRecordPolicy("raise", _locate)
    assembler = Assembler(raw=False, fields=None, ids=True, seeder=None, policy=policy, to_tensor=None, collate_fn=None)
    words = "ids=True adds a column '__id__' to the batches, and the records have one"
    with pytest.raises(ConfigError, match=words):
        assembler.decode(_batch(records, [[0, 1, 2, 3, 4]]))
    with pytest.raises(ConfigError, match=words):
        assembler.know(Contents(format="tfrecord", schema={"__id__": FieldType("int64")}))
    mixed = Contents(format="tfrecord", schema={"__source__": FieldType("int64")})
    with pytest.raises(ConfigError, match="ids=True adds a column '__source__' to the batches"):
        assembler.know(MixedContents(names=("a", "b"), contents=(mixed, mixed), firsts=np.array([5])))


def test_what_failed_its_check_and_what_cannot_be_decoded_go_together() -> None:
    policy = BadRecordPolicy("skip", _locate)
    assembler = Assembler(raw=False, fields=None, ids=True, seeder=None, policy=policy, to_tensor=None, collate_fn=None)
    batch = _batch(_BROKEN, [[4, 1], [2, 3]], bad=[0])
    decoded = assembler.decode(batch)
    assert decoded.ids.tolist() == decoded.columns["__id__"].tolist() == [30, 10]
    assert decoded.bad == 3
    with pytest.raises(CorruptRecordError, match="record 100 of shard shard0 at byte 0: its CRC32C is wrong"):
        _assembler(raw=False)(batch)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_seed_is_of_the_record_that_is_there_and_of_no_other(on_error: str) -> None:
    def seeder(epoch: int, ids: Any) -> Any:
        return (ids * 1000 + epoch).astype(np.uint64)

    made = _assembler(raw=False, seeder=seeder, on_error=on_error)(_batch(_BROKEN, [[0, 1, 2, 3, 4]]))
    assert made["__seed__"].tolist() == [1000 * number for number in made["__id__"].tolist()]


def test_an_array_that_replaces_another_is_one_of_its_own() -> None:
    ragged = [encode_example({"boxes": list(range(number + 1))}) for number in range(5)]
    made = _assembler(raw=False, on_error="replace")(_batch(ragged, [[2, 3]], bad=[0, 1, 4]))
    assert [boxes.tolist() for boxes in made["boxes"]] == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2]]
    for boxes in made["boxes"]:
        boxes += 100
    assert [int(boxes[0]) for boxes in made["boxes"]] == [100] * 5
