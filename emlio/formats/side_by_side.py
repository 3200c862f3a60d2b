"""Arrays side by side, such as images.npy and labels.npy, whose rows probably belong together.

A daemon serves each file as a record, as a whole. Columns of such arrays are made by converting them.

Covers: finding them by their headers, the advice. Does not cover: converting them
(emlio.prepare.sources.array_columns).
"""

from collections.abc import Mapping
from typing import Final

from emlio.formats.npy_header import NpyHeader

__all__ = ["MOST_SIDE_BY_SIDE", "side_by_side"]

MOST_SIDE_BY_SIDE: Final = 8
"""More files are records themselves, even if their lengths are equal."""

_PAIR: Final = ["x.npy", "y.npy"]


def side_by_side(headers: Mapping[str, NpyHeader]) -> str:
    """Return the advice for arrays that have equally many rows, but are not all alike; "" for others.

    Args:
        headers: of all arrays of a folder, by their names in it.
    """
    rows = {header.shape[:1] for header in headers.values()}
    if not 2 <= len(headers) <= MOST_SIDE_BY_SIDE or len(rows) != 1 or any("/" in name for name in headers):
        return ""
    (count,) = rows
    forms = {(header.shape, header.dtype.newbyteorder("=")) for header in headers.values()}
    # Arrays of one shape may well be records: clips of sound, embeddings.
    if not count or count[0] < 2 or (len(forms) == 1 and sorted(map(str.lower, headers)) != _PAIR):
        return ""
    *names, last = sorted(headers)
    return (
        f"each file is one record, but {', '.join(names)} and {last} have {count[0]:,} rows each. If a row of each makes a "
        "record, convert them: emlio convert DIR OUT --from npy-columns"
    )
