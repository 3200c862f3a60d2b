"""Detection of the records that prevent a batch from being decoded.

`ColumnDecoder.decode` raises an error for the first bad record in its own reading order. Here each
record is read separately and all are compared, so that the few exceptions are blamed, whatever
their order.

Covers: the faulty records and the reasons; removing records from pieces. Does not cover: the
handling of a batch with faults; the fast path, which does not use this module.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from emlio.errors import DatasetError
from emlio.example.arrays import array_names, parts_of
from emlio.example.columns import Piece
from emlio.example.decode import KIND_NAMES, NO_KIND, read_features

__all__ = ["Absent", "find_absent", "find_faults", "without"]

_Choice = TypeVar("_Choice", bound=Hashable)
_Kinds = dict[bytes, int]
_OTHER_KIND = ", and most records of its batch are none either; use raw=True for records of another format"


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A feature that no record of a batch has.

    Attributes:
        name: of the feature.
        place: the lowest place of a readable record.
        there: the features of that record.
        records: the number of readable records.
    """

    name: str
    place: int
    there: tuple[str, ...]
    records: int


def find_absent(pieces: Sequence[Piece], fields: Sequence[str]) -> Absent | None:
    """Return the first requested feature that no record has, as with a misspelled name.

    None if each feature is in some record.
    """
    kinds_by_place, _ = _read_each(pieces, None)
    if not kinds_by_place:
        return None
    place, kinds = next(iter(kinds_by_place.items()))
    present = {name.decode() for kinds in kinds_by_place.values() for name in kinds}
    absent = next((name for name in fields if name not in present), None)
    if absent is None:
        return None
    return Absent(name=absent, place=place, there=tuple(_columns(kinds)), records=len(kinds_by_place))


def find_faults(pieces: Sequence[Piece], fields: Sequence[str] | None) -> dict[int, str]:
    """Return the places of the records that must be removed before decoding, with the reasons.

    The most frequent choice decides: for each feature its kind and, if no fields are given, the set
    of names. In a tie, the record with the lowest place counts.

    Args:
        pieces: the batch, as `ColumnDecoder.decode` takes it.
        fields: the requested features, as given to the `ColumnDecoder`; None for all.

    Returns:
        The reasons by place, lowest place first; empty where `decode` raises no error. It raises
        no error for the remaining records, if there are any.
    """
    kinds_by_place, faults = _read_each(pieces, None if fields is None else tuple(name.encode() for name in fields))
    if fields is None:
        usual = _most_usual(frozenset(kinds) for kinds in kinds_by_place.values())
        for place, kinds in kinds_by_place.items():
            if kinds.keys() != usual:
                faults[place] = _other_names(kinds, usual)
    left = {place: kinds for place, kinds in kinds_by_place.items() if place not in faults}
    # All names are known before any record is removed: a record that differs in one feature still
    # counts for the others.
    for name in sorted({name for kinds in left.values() for name in kinds}):
        usual_kind = _most_usual(kinds[name] for kinds in left.values())
        for place, kinds in left.items():
            if kinds[name] != usual_kind:
                faults.setdefault(
                    place,
                    f"feature {name.decode()!r} must have one type in all records of a batch: most hold "
                    f"{KIND_NAMES[usual_kind or NO_KIND]}, this one {KIND_NAMES[kinds[name]]}",
                )
    return dict(sorted(faults.items()))


def without(pieces: Sequence[Piece], places: Collection[int]) -> list[Piece]:
    """Return `pieces` without the records at `places`.

    The others keep their order and are numbered from 0 without gaps, even if the pieces had gaps
    before. Pieces without records are dropped; the records' bytes are not touched.
    """
    gone = np.fromiter(places, np.int64, len(places))
    kept = [~np.isin(piece.slots, gone) for piece in pieces]
    left = [piece.slots[keep] for piece, keep in zip(pieces, kept, strict=True)]
    in_order = np.sort(np.concatenate(left)) if left else gone
    return [
        replace(
            piece,
            starts=piece.starts[keep],
            ends=piece.ends[keep],
            slots=np.searchsorted(in_order, piece.slots[keep]).astype(np.int64),
            notes=None if piece.notes is None else piece.notes[keep],
        )
        for piece, keep in zip(pieces, kept, strict=True)
        if keep.any()
    ]


def _read_each(pieces: Sequence[Piece], fields: tuple[bytes, ...] | None) -> tuple[dict[int, _Kinds], dict[int, str]]:
    """Return the kinds of each place's features, or why they cannot be read; lowest place first."""
    wanted = None if fields is None else frozenset(fields)
    kinds_by_place: dict[int, _Kinds] = {}
    faults: dict[int, str] = {}
    malformed: dict[int, str] = {}
    for piece in pieces:
        bounds = zip(piece.slots.tolist(), piece.starts.tolist(), piece.ends.tolist(), strict=True)
        for place, start, end in bounds:
            try:
                kinds = _kinds(piece.buffer, start, end, wanted)
                missing = None if fields is None else next((name for name in fields if name not in kinds), None)
                if missing is None:
                    kinds_by_place[place] = kinds
                else:
                    there = _named(_kinds(piece.buffer, start, end, None))
                    faults[place] = f"has no feature {missing.decode()!r}, only {there}"
            except DatasetError as error:
                malformed[place] = str(error)
    if len(malformed) > len(kinds_by_place) + len(faults):
        malformed = {place: reason + _OTHER_KIND for place, reason in malformed.items()}
    faults |= malformed
    return dict(sorted(kinds_by_place.items())), faults


def _kinds(buffer: memoryview, start: int, end: int, wanted: frozenset[bytes] | None) -> _Kinds:
    features = read_features(buffer, start, end, wanted)
    return {name: feature[0] for name, feature in features.items() if feature[0] != NO_KIND}


def _most_usual(choices: Iterable[_Choice]) -> _Choice | None:
    # Counter keeps insertion order among equals, and places come lowest first.
    usual = Counter(choices).most_common(1)
    return usual[0][0] if usual else None


def _other_names(kinds: Mapping[bytes, int], usual: frozenset[bytes] | None) -> str:
    lacks, more = _named((usual or frozenset()) - kinds.keys()), _named(kinds.keys() - (usual or frozenset()))
    return (
        f"has other features than most records of the batch: it lacks {lacks} and adds {more}. Choose the features "
        "to load with fields="
    )


def _columns(names: Iterable[bytes]) -> list[str]:
    """Return the names of the columns that these features become: of arrays, not of their parts."""
    features = _named(names)
    arrays = array_names(features)
    parts = {part for name in arrays for part in parts_of(name, features)}
    return sorted([*arrays, *(name for name in features if name not in parts)])


def _named(names: Iterable[bytes]) -> list[str]:
    return sorted(name.decode() for name in names)
