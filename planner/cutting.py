"""How the records of one share become batches: the seam between token batches and the rules that make them.

Covers: what a rule must offer, and its result as a value. Does not cover: the rules (padded.py, packed.py), which records
are in a share (token_epoch.py).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Cut", "Cutting"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cutting:
    """Pieces of records, and where each lies. All arrays have one item for each piece.

    Attributes:
        records: which record of the share the piece is of.
        lengths: its tokens.
        batches: which batch it is in.
        rows: which row of that batch.
        columns: where in the row it begins.
    """

    records: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    batches: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]


class Cut(Protocol):
    """A rule that cuts shares into batches. Frozen and pure, so threads may share it; `str` of it names it in a state.

    Lengths come as whole numbers of at least 1, a record without tokens as 1: it needs a place too. In a matrix each row is
    a share, and 0 says that there is no record.
    """

    @property
    def accepted_tokens(self) -> int | None:
        """The longest record that a dataset may have; None where any will do."""
        ...

    @property
    def piece_tokens(self) -> int:
        """The most tokens that lie in a row one after another."""
        ...

    @property
    def splits(self) -> bool:
        """Whether a record may come in several pieces, in several batches. Otherwise its only piece is all there is of it."""
        ...

    @property
    def shape(self) -> tuple[int, int] | None:
        """Rows and columns of every batch; None where they follow from the records in it."""
        ...

    def most(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """For each row of a matrix of shares the most batches it can be cut into."""
        ...

    def needed(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """For each row of a matrix of shares the fewest batches that hold it."""
        ...

    def cut(self, lengths: npt.NDArray[np.int32], batches: int) -> Cutting:
        """One share as exactly this many batches, none of them empty; `batches` lies between `needed` and `most`."""
        ...
