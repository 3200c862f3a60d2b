"""The next things to do with the page cache, and the meaning of reads for readers of an order. Pure."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

__all__ = ["Moves", "Sight"]

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves:
    """The next things to do, by piece.

    Attributes:
        drop: the entries and offsets of those whose pages are freed, shape (2, n).
        push: the entries, offsets, sizes and withheld bytes of those that are pushed, shape (4, m).
    """

    drop: _Ints
    push: _Ints

    def __bool__(self) -> bool:
        return bool(self.drop.size or self.push.size)


class Sight(IntEnum):
    """The meaning of a read for the readers of an order; the likelier come first."""

    HERE = 1
    """It is where they were expected."""
    LATE = 2
    """It is by one that is behind the others."""
    FAR = 3
    """They are elsewhere, or one has begun again."""
