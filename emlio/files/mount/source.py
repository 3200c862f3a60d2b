"""The source of a mount's bytes."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from emlio.receiver.engine.file_questions import RangesRead

__all__ = ["RangesRead", "Source"]

_Ints = npt.NDArray[np.int64]


class Source(Protocol):
    """Bytes of files, asked for many at once. Threads ask beside each other."""

    def read_ranges(self, files: _Ints, offsets: _Ints, lengths: _Ints, /) -> Iterable[RangesRead]:
        """Return, in order, the bytes of ranges of files, or why they cannot be read: some in one memory, then the next.

        A range has 1 byte to 1 MiB, all inside its file. An exception fails all that were not returned before it; the
        reader gets EIO. Waits no longer than the recovery of a lost daemon may take.
        """
        ...
