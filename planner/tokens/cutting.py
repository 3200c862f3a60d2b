"""The interface between token batches and the rules that cut records into batches.

Covers: what a rule must offer, and its result. Does not cover: the rules (padded.py, packed.py),
which records are in a share (epoch.py).
"""

from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["Cut", "Cutting"]


class Cutting(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Pieces of records and their positions. All arrays have one item for each piece.

    Attributes:
        records: the number of the piece's record in the share.
        lengths: the tokens of the piece.
        batches: the number of its batch.
        rows: its row in that batch.
        columns: the column at which it begins.
    """

    records: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    batches: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]


class Cut(Protocol):
    """A rule that cuts shares into batches.

    It is frozen and pure, so threads may share it; `str` of it names it in a state. Lengths are at
    least 1; a record without tokens counts as 1, as it needs a place, too. In a matrix each row is
    a share, and 0 means that there is no record.
    """

    @property
    def accepted_tokens(self) -> int | None:
        """The longest record that a dataset may have; None if any length is accepted."""
        ...

    @property
    def piece_tokens(self) -> int:
        """The most tokens of one piece."""
        ...

    @property
    def splits(self) -> bool:
        """True if a record may be cut into several pieces, in several batches.

        Otherwise its only piece is all that is used of it.
        """
        ...

    @property
    def shape(self) -> tuple[int, int] | None:
        """Rows and columns of every batch; None if they depend on its records."""
        ...

    def most(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return, for each row of a matrix of shares, the most batches it can be cut into."""
        ...

    def needed(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return, for each row of a matrix of shares, the fewest batches that hold it."""
        ...

    def cut(self, lengths: npt.NDArray[np.int32], batches: int) -> Cutting:
        """Cut one share into exactly this many batches, none of them empty.

        `batches` lies between `needed` and `most`.
        """
        ...
