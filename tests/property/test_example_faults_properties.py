"""A record is decoded, or is at fault, whatever the other records of its batch are."""

from random import Random
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.example import Piece, encode_example
from emlio.example.faults import without
from emlio.formats.tfrecord.example_form import ExampleRecords

_VALUES = {
    "int": st.just([1]) | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
    "float": st.just([0.5]) | st.lists(st.floats(width=32), min_size=1, max_size=3),
    "bytes": st.just([b"x"]) | st.lists(st.binary(max_size=9), min_size=1, max_size=3),
    "empty": st.just(np.empty(0, np.float32)),
}
_NAMES = ("a", "b", "caf\u00e9")


@st.composite
def _batches(draw: st.DrawFn) -> tuple[list[bytes], list[str] | None]:
    """Records that are mostly alike: some malformed, some short of a feature or with one more, some of another kind."""
    usual = {
        name: draw(st.sampled_from(sorted(_VALUES))) for name in draw(st.sets(st.sampled_from(_NAMES), min_size=1))
    }
    oddness = st.sampled_from(["", "", "", *draw(st.sets(st.sampled_from(["cut", "flip", "noise", "name", "kind"])))])
    records: list[bytes] = []
    for _ in range(draw(st.integers(1, 14))):
        odd = draw(oddness)
        kinds = dict(usual)
        if odd == "name":
            name = draw(st.sampled_from((*_NAMES, "other")))
            if kinds.pop(name, None) is None:
                kinds[name] = "int"
        if odd == "kind":
            kinds[draw(st.sampled_from(sorted(kinds)))] = draw(st.sampled_from(sorted(_VALUES)))
        record = bytearray(encode_example({name: draw(_VALUES[kind]) for name, kind in kinds.items()}))
        if odd == "cut":
            del record[draw(st.integers(0, len(record))) :]
        if odd == "flip" and record:
            record[draw(st.integers(0, len(record) - 1))] ^= draw(st.integers(1, 255))
        records.append(draw(st.binary(max_size=20)) if odd == "noise" else bytes(record))
    return records, draw(st.none() | st.lists(st.sampled_from((*usual, "b")), min_size=1, unique=True))


def _pieces(records: list[bytes], order: list[int], cut: int) -> list[Piece]:
    made: list[Piece] = []
    for part in (order[:cut], order[cut:]):
        lengths = np.array([len(records[place]) for place in part], np.int64)
        ends = np.cumsum(lengths, dtype=np.int64)
        buffer = memoryview(b"".join(records[place] for place in part))
        made.append(Piece(buffer=buffer, starts=ends - lengths, ends=ends, slots=np.array(part, np.int64)))
    return made


def _values(value: Any) -> list[Any] | None:
    """A record's value as a list, which is what it is in some batches and not in others."""
    if value is None:
        return None
    items = value if isinstance(value, list) else np.atleast_1d(value) if not isinstance(value, memoryview) else [value]
    return [bytes(one) if isinstance(one, memoryview) else one.tobytes() for one in items]


def _is_whole(record: bytes, fields: list[str] | None) -> bool:
    # Damage in a feature that is not requested is skipped.
    try:
        ExampleRecords(fields).columns(_pieces([record], [0], 0)[1:], 1)
    except DatasetError:
        return False
    return True


_CAFE = b"\n\x0e\n\x05caf\xc3\xa9\x12\x05\n\x03\n\x01x"
_BAD_GROUP = b"\x0b" + _CAFE
_BAD_WHERE_UNASKED = b"\n\x19\n\x07\n\x00a\x12\x02\x12\x00" + _CAFE


@example(([_BAD_GROUP, _BAD_WHERE_UNASKED, _BAD_WHERE_UNASKED], ["a"]), Random(0), 0, 1)
@settings(deadline=None)
@given(_batches(), st.randoms(use_true_random=False), st.integers(0, 14), st.integers(1, 4))
def test_a_record_is_decoded_as_if_it_were_alone(
    batch: tuple[list[bytes], list[str] | None], random: Random, cut: int, times: int
) -> None:
    records, fields = batch
    records *= times**2  # many are parsed together
    order = list(range(len(records)))
    random.shuffle(order)
    pieces, form = _pieces(records, order, cut), ExampleRecords(fields)
    faults = form.faults(pieces)
    assert list(faults) == [place for place, record in enumerate(records) if not _is_whole(record, fields)]
    kept = [place for place in range(len(records)) if place not in faults]
    left = without(pieces, faults)
    views = {
        slot: piece.buffer[start:end].tobytes()
        for piece in left
        for slot, start, end in zip(piece.slots.tolist(), piece.starts.tolist(), piece.ends.tolist(), strict=True)
    }
    assert [views[slot] for slot in range(len(views))] == [records[place] for place in kept]
    if not kept:
        return
    columns = form.columns(left, len(kept))
    for slot, place in enumerate(kept):
        alone = form.columns(_pieces([records[place]], [0], 0)[1:], 1)
        assert alone.keys() <= columns.keys()
        for name, column in columns.items():
            mine = _values(alone[name][0]) if name in alone else None
            assert _values(column[slot]) == mine, name
