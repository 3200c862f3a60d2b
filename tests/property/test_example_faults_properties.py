"""What find_faults leaves can be decoded, and what can be decoded has no faults."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.example import ColumnDecoder, Piece, encode_example
from emlio.example.faults import find_faults, without

_VALUES = {
    "int": st.just([1]) | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
    "float": st.just([0.5]) | st.lists(st.floats(width=32), min_size=1, max_size=3),
    "bytes": st.just([b"x"]) | st.lists(st.binary(max_size=9), min_size=1, max_size=3),
    "empty": st.just(np.empty(0, np.float32)),
}
_NAMES = ("a", "b", "caf\u00e9")
_WAYS = (1, 10**9)  # records read together, records read one by one


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


def _is_decoded(pieces: list[Piece], count: int, fields: list[str] | None, together_from: int) -> bool:
    try:
        ColumnDecoder(fields, together_from=together_from).decode(pieces, count)
    except DatasetError:
        return False
    return True


@settings(deadline=None)
@given(_batches(), st.randoms(use_true_random=False), st.integers(0, 14), st.sampled_from(_WAYS))
def test_a_batch_is_decoded_if_and_only_if_it_has_no_faults_and_without_them_it_always_is(
    batch: tuple[list[bytes], list[str] | None], random: Random, cut: int, together_from: int
) -> None:
    records, fields = batch
    order = list(range(len(records)))
    random.shuffle(order)
    pieces = _pieces(records, order, cut)
    faults = find_faults(pieces, fields)
    assert list(faults) == sorted(faults)
    assert all(faults.values())
    assert _is_decoded(pieces, len(records), fields, together_from) == (not faults)
    left = without(pieces, faults)
    kept = [place for place in range(len(records)) if place not in faults]
    views = {
        slot: piece.buffer[start:end].tobytes()
        for piece in left
        for slot, start, end in zip(piece.slots.tolist(), piece.starts.tolist(), piece.ends.tolist(), strict=True)
    }
    assert [views[slot] for slot in range(len(views))] == [records[place] for place in kept]
    if kept:
        assert _is_decoded(left, len(kept), fields, together_from)
        assert find_faults(left, fields) == {}


@settings(deadline=None)
@given(_batches(), st.randoms(use_true_random=False))
def test_how_a_batch_came_makes_no_difference(batch: tuple[list[bytes], list[str] | None], random: Random) -> None:
    records, fields = batch
    order = list(range(len(records)))
    plain = find_faults(_pieces(records, order, 0), fields)
    random.shuffle(order)
    assert find_faults(_pieces(records, order, len(order) // 2), fields) == plain
