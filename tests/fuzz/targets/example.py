"""Records that should be tf.train.Example, read one by one and into columns.

byte 0   bits 0 to 2: which features are wanted; bits 3 and 4: how many different records
then     for each record but the last two bytes of length, and the record
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from emlio.errors import DatasetError
from emlio.example import Column, ColumnDecoder, Piece, parse_example
from emlio.formats.tfrecord.example_form import ExampleRecords
from tests.fuzz.draws import Draws
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]

_FIELDS: tuple[list[str] | None, ...] = (None, None, None, ["a"], ["b", "a"], ["image/encoded"], ["label"], [""])
_COPIES = 9
"""Of each record: fewer than eight are never read together."""


def fuzz(data: bytes) -> None:
    """Whichever way a batch is read, it is refused or comes to the same columns."""
    draws = Draws(data)
    flags = draws.byte()
    records = [draws.take(int.from_bytes(draws.take(2), "little")) for _ in range(flags >> 3 & 3)]
    records.append(draws.rest())
    fields = _FIELDS[flags & 7]
    alone = [_of(lambda record=record: _plain(parse_example(record))) for record in records]
    batch = records * _COPIES
    slowly, together = (_of(lambda way=way: _columns(_decoded(batch, fields, way))) for way in (1 << 30, 1))
    assert slowly == together, f"one by one came {slowly}, together {together}"
    form, pieces = ExampleRecords(fields), [_piece(batch)]
    faults = form.faults(pieces)
    assert faults or form.columns(pieces, len(batch)) is not None
    assert not faults or slowly is None or all("array" in reason for reason in faults.values())
    if None in alone and fields is None:
        assert slowly is None, "a batch was read whose records cannot be"
    if slowly is not None and fields is None and len(records) == 1 and alone[0] is not None:
        held = {name: values for name, values in alone[0].items() if values}
        assert set(held) <= set(slowly)
    if any(one is None for one in alone):
        raise DatasetError("a record is no Example")


def _of(read: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return read()
    except DatasetError:
        return None


def _piece(records: list[bytes]) -> Piece:
    lengths = np.array([len(record) for record in records], np.int64)
    ends = np.cumsum(lengths, dtype=np.int64)
    slots = np.arange(len(records), dtype=np.int64)
    return Piece(buffer=memoryview(b"".join(records)), starts=ends - lengths, ends=ends, slots=slots)


def _decoded(records: list[bytes], fields: list[str] | None, together_from: int) -> dict[str, Column]:
    return ColumnDecoder(fields, together_from=together_from).decode([_piece(records)], len(records))


def _plain(features: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [bytes(one) if isinstance(one, memoryview) else one for one in values]
        for name, values in features.items()
    }


def _columns(columns: dict[str, Column]) -> dict[str, Any]:
    """What can be compared: numbers by their bytes, since no two NaN are equal."""
    return {name: _comparable(column) for name, column in columns.items()}


def _comparable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return [_comparable(one) for one in value] if isinstance(value, list) else bytes(value)


TARGET = Target(
    fuzz=fuzz,
    raises=(DatasetError,),
    most_bytes=1024,
    tokens=(
        b"\xff" * 9 + b"\x01",
        b"\x80" * 9 + b"\x02",
        b"\x0a\x00",
        b"\x1a\x03\x0a\x01\x05",
        b"\x12\x06\x0a\x04\x00\x00\xc0\x7f",
        b"\x0a\x03\x0a\x01x",
        b"\x0b",
        b"\x0c",
        b"\x08",
        b"\x0d",
        b"\xf8\x01",
    ),
)
