"""A data message with a decoded header, received from a daemon or read on this host.

Covers: the value. Does not cover: the wire (emlio.wire.data), reading on this host
(emlio.receiver.local.shard_reader).
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from emlio.formats.notes import find_notes
from emlio.formats.plain import check_plain
from emlio.tfrecord import FrameRun, check_frames
from emlio.wire.data import DataHeader

__all__ = ["Message"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Message:
    """A data message with a decoded header.

    Attributes:
        header: the header.
        payload: its records, and the notes on them.
        sizes: the size of each record, with its frame if it has one.
        run: where the records' data lies, if they were already checked: the thread that read them
            checks them while they are in its cache.
    """

    header: DataHeader
    payload: memoryview
    sizes: npt.NDArray[np.int64]
    run: FrameRun | None = None

    def checked(self, *, verify: bool) -> FrameRun:
        """Return where the records' data lies, and which of them are not valid.

        Args:
            verify: whether to compute checksums.

        Raises:
            RemoteProtocolError: the notes are damaged.
        """
        if self.run is not None:
            return self.run
        header, payload = self.header, self.payload
        if not header.crcs:
            return check_frames(payload, self.sizes, verify=verify)
        run = check_plain(payload, self.sizes, header.record_crcs(), verify=verify)
        return replace(run, notes=find_notes(payload, header.notes, header.count)) if header.notes else run
