"""A data message with a decoded header, received from a daemon or read on this host.

Covers: the value. Does not cover: the wire (emlio.wire.data), reading on this host
(emlio.receiver.local.shard_reader).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emlio.tfrecord import FrameRun
from emlio.wire.data import DataHeader

__all__ = ["Message"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Message:
    """A data message with a decoded header.

    Attributes:
        header: the header.
        payload: the frames of its records.
        sizes: the size of each frame.
        run: where the records' data lies, if they were already checked: the thread that read them
            checks them while they are in its cache.
    """

    header: DataHeader
    payload: memoryview
    sizes: npt.NDArray[np.int64]
    run: FrameRun | None = None
