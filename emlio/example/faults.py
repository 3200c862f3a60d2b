"""The kinds of features of each record of a batch, read one by one.

`ColumnDecoder.decode` raises an error for the first record that is not like the others. Here each record is judged by itself, so
that only those that cannot be read are blamed, whatever the others are.
"""

from collections.abc import Collection, Sequence

import numpy as np

from emlio.errors import DatasetError
from emlio.example.columns import Piece
from emlio.example.decode import NO_KIND, read_features

__all__ = ["kinds_of", "without"]

_OTHER_KIND = ", and most records of its batch are none either; use raw=True for records of another format"


def kinds_of(
    pieces: Sequence[Piece], fields: Collection[str] | None
) -> tuple[dict[int, dict[str, int]], dict[int, str]]:
    """Return the kind of each feature of the records, by place, and why others cannot be read; lowest place first.

    Args:
        pieces: the batch, as `ColumnDecoder.decode` takes it.
        fields: the features to look at; None for all.
    """
    wanted = None if fields is None else frozenset(name.encode() for name in fields)
    kinds: dict[int, dict[str, int]] = {}
    faults: dict[int, str] = {}
    for piece in pieces:
        bounds = zip(piece.slots.tolist(), piece.starts.tolist(), piece.ends.tolist(), strict=True)
        for place, start, end in bounds:
            try:
                found = read_features(piece.buffer, start, end, wanted)
            except DatasetError as error:
                faults[place] = str(error)
            else:
                kinds[place] = {name.decode(): kind for name, (kind, _, _) in found.items() if kind != NO_KIND}
    if len(faults) > len(kinds):
        faults = {place: reason + _OTHER_KIND for place, reason in faults.items()}
    return dict(sorted(kinds.items())), dict(sorted(faults.items()))


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
        piece.chosen(keep, np.searchsorted(in_order, piece.slots[keep]).astype(np.int64))
        for piece, keep in zip(pieces, kept, strict=True)
        if keep.any()
    ]
