"""Records in pieces of a batch, as a rank receives them."""

from collections.abc import Sequence

import numpy as np

from emlio.example import Piece

__all__ = ["piece_of"]


def piece_of(records: Sequence[bytes], slots: Sequence[int] | None = None) -> Piece:
    """Return records that lie one behind the other; by default they have the first places of the batch."""
    sizes = np.array([len(record) for record in records], np.int64)
    ends = np.cumsum(sizes)
    places = np.arange(len(records)) if slots is None else np.array(slots, np.int64)
    return Piece(buffer=memoryview(b"".join(records)), starts=ends - sizes, ends=ends, slots=places)
