"""Vectorised parsing of all records of one buffer.

Each step reads the next feature of every record at once.

Records of one writer look alike, so a step costs a dozen numpy calls regardless of the number of
records. The walk accepts only the form that every serialiser writes (name before value, one list,
numbers packed, nothing unknown). A record in any other form is returned as odd, for the scalar
parser to read or refuse. So no error is raised here, and an accepted record is read exactly as by
the scalar parser.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.example.decode import BYTES, FLOATS, INTS

__all__ = ["Spans", "scan"]

_Ints = npt.NDArray[np.int64]
_Octets = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]

_DELIMITED_1 = 0x0A
_NAMES_PER_STEP = 16
"""The limit of different names in one step. Records with further names are left to the scalar
parser, since each name costs a pass.
"""
_FEWEST_TOGETHER = 8
"""With fewer unfinished records than this, they are left to the scalar parser.

Otherwise one record of endless tiny entries would cost a whole pass for each entry.
"""


class Spans(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The positions of one feature's values.

    Attributes:
        kind: BYTES, FLOATS or INTS, the same in every record that is not odd.
        lows: start of the value (bytes) or of the packed run (numbers), per record.
        highs: one past its end.
    """

    kind: int
    lows: _Ints
    highs: _Ints


def scan(
    buffer: memoryview, starts: _Ints, ends: _Ints, names: Sequence[bytes], *, closed: bool
) -> tuple[dict[bytes, Spans], _Mask]:
    """Find the features `names` in the records buffer[starts[i]:ends[i]].

    Args:
        buffer: bytes.
        starts: start of each record; inside the buffer, as are the ends.
        ends: one past each record's last byte.
        names: the requested features.
        closed: whether a record with other features is odd.

    Returns:
        The spans by name, and which records are odd. Spans of odd records have no meaning.
    """
    octets = np.frombuffer(buffer, np.uint8)
    odd = np.zeros(len(starts), np.bool_)
    values = {name: np.full(len(starts), -1, np.int64) for name in names}
    value_ends = {name: np.zeros(len(starts), np.int64) for name in names}
    if not octets.size or not names:
        odd[:] = True
        return {}, odd
    size, at = _length(octets, starts + 1, odd)
    odd |= (octets.take(starts, mode="clip") != _DELIMITED_1) | (at + size != ends)
    rows = np.flatnonzero(~odd)
    at, end = at[rows], ends[rows]
    while rows.size:
        open_ = at < end
        if not open_.all():
            rows, at, end = rows[open_], at[open_], end[open_]
        if rows.size < _FEWEST_TOGETHER:
            odd[rows] = True
            break
        wrong = octets.take(at, mode="clip") != _DELIMITED_1
        size, low = _length(octets, at + 1, wrong)
        at = low + size
        wrong |= at > end
        _name_values(buffer, (low, at), rows, wrong, values, value_ends, closed=closed)
        if wrong.any():
            odd[rows[wrong]] = True
            rows, at, end = rows[~wrong], at[~wrong], end[~wrong]
    return {name: _value_spans(octets, values[name], value_ends[name], odd) for name in names}, odd


def _length(octets: _Octets, at: _Ints, wrong: _Mask) -> tuple[_Ints, _Ints]:
    """Return the varint at each place, and where it ends.

    Varints of more than five bytes, which no length needs, are marked as wrong. Positions past the
    buffer read as its last byte; every caller compares the result with known bounds.
    """
    octet = octets.take(at, mode="clip")
    value = octet.astype(np.int64)
    at = at + 1
    more = octet >= 0x80
    if not more.any():
        return value, at
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        octet = octets.take(at, mode="clip")
        value += np.where(more, (octet & 0x7F).astype(np.int64) << shift, 0)
        at += more
        more &= octet >= 0x80
        if not more.any():
            return value, at
    wrong |= more
    return value, at


def _name_values(
    buffer: memoryview,
    entries: tuple[_Ints, _Ints],
    rows: _Ints,
    wrong: _Mask,
    values: dict[bytes, _Ints],
    value_ends: dict[bytes, _Ints],
    *,
    closed: bool,
) -> None:
    """Read the name of each entry, and note where the value of a requested name begins.

    Entries in another form are marked as wrong. The name of the first entry not yet named is read,
    then all entries are compared with it, until none is left. That takes one pass if all records
    have the same order, and a few otherwise.
    """
    lows, highs = entries
    left = np.flatnonzero(~wrong)
    for _ in range(_NAMES_PER_STEP):
        if not left.size:
            return
        low, high = int(lows[left[0]]), int(highs[left[0]])
        head = buffer[
            low : min(high, low + 130)
        ].tobytes()  # a name of at most 127 bytes, its tag and length, the next tag
        if len(head) < 2 or head[0] != _DELIMITED_1 or head[1] >= 0x80 or len(head) < 2 + head[1]:
            wrong[left[0]] = True
            left = left[1:]
            continue
        name = head[2 : 2 + head[1]]
        known = name in values
        if (closed and not known) or (known and head[2 + len(name) : 3 + len(name)] != b"\x12"):
            wrong[left[0]] = True
            left = left[1:]
            continue
        # A requested name is compared together with its length before it and the value's tag after
        # it.
        head = head[: len(name) + (3 if known else 2)]
        same = _begins_with(buffer, lows[left], highs[left], head)
        if known:
            hit = left[same]
            wrong[hit[values[name][rows[hit]] >= 0]] = True  # a second entry with the same name
            values[name][rows[hit]] = lows[hit] + len(head)
            value_ends[name][rows[hit]] = highs[hit]
        left = left[~same]
    wrong[left] = True


def _begins_with(buffer: memoryview, lows: _Ints, highs: _Ints, head: bytes) -> _Mask:
    # Overlapping windows over the buffer, one at each byte. Strings of one width are equal only if
    # all their bytes are.
    windows: npt.NDArray[np.bytes_] = np.ndarray(
        (len(buffer) - len(head) + 1,), dtype=f"S{len(head)}", buffer=buffer, strides=(1,)
    )
    fits = lows + len(head) <= highs
    same: _Mask = windows[np.minimum(lows, len(windows) - 1)] == np.array(head, windows.dtype)
    return fits & same


def _value_spans(octets: _Octets, values: _Ints, value_ends: _Ints, odd: _Mask) -> Spans:
    """Return the content of the list in each value.

    Records that lack the value, or have another form, become odd.
    """
    odd |= values < 0
    size, at = _length(octets, values, odd)
    odd |= at + size != value_ends
    kinds = octets.take(at, mode="clip")
    regular = np.flatnonzero(~odd)
    kind = int(kinds[regular[0]]) if regular.size else 0
    if kind not in (BYTES, FLOATS, INTS):
        odd[:] = True
        return Spans(kind=kind, lows=values, highs=value_ends)
    odd |= kinds != kind
    size, at = _length(octets, at + 1, odd)
    odd |= at + size != value_ends
    empty = at == value_ends
    wrong = octets.take(at, mode="clip") != _DELIMITED_1
    size, low = _length(octets, at + 1, wrong)
    wrong |= low + size != value_ends
    if kind == FLOATS:
        wrong |= size % 4 != 0
    elif kind == INTS:
        wrong |= (size > 0) & (octets.take(value_ends - 1, mode="clip") >= 0x80)
    if kind != BYTES and empty.any():
        # An empty list: the bytes read after it belong to the next field.
        wrong &= ~empty
        low = np.where(empty, value_ends, low)
    odd |= wrong
    return Spans(kind=kind, lows=low, highs=value_ends)
