"""Data messages with decoded headers, read on this host or received as a stream.

Does not cover: the order on a lane (emlio.receiver.placement.reorder).
"""

from bisect import bisect_right
from dataclasses import replace
from operator import attrgetter
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import RemoteProtocolError
from emlio.formats.notes import find_notes
from emlio.formats.plain import check_plain
from emlio.tfrecord import FrameRun, check_frames
from emlio.wire.data import DataFrame, DataHeader, decode_data_header
from emlio.wire.seal import TAG_BYTES, StreamSeal

__all__ = ["MOST_GAPS", "Message", "MessageNumbers", "StreamReader"]

MOST_GAPS: Final = 1 << 16
"""A lane's buffers hold 16 MiB, which is 16,384 messages of 1 KiB. Each gap takes about 100
bytes."""


class MessageNumbers:
    """The message numbers of one stream. Call `check` before a message is opened, `add` after.

    Messages come over several lanes, so out of order. Kept are the next number after the highest one,
    and the gaps before it. There are about as many gaps as messages in flight on other lanes, however
    long the stream is.
    """

    def __init__(self, label: str, *, most_gaps: int = MOST_GAPS) -> None:
        """Begin before the first message.

        Args:
            label: the stream's name, for errors.
            most_gaps: the most gaps that are kept; beyond that, the numbers in the oldest gaps
                count as taken.
        """
        self._label = label
        self._most_gaps = most_gaps
        self._next = 0
        self._gaps: list[range] = []  # rising, none is empty, and none touches another

    @property
    def gaps(self) -> int:
        """The number of gaps that are kept."""
        return len(self._gaps)

    def check(self, number: int) -> None:
        """Raise `RemoteProtocolError` if this number was taken, or is too old to tell."""
        if number < self._next and number not in self._gap(number):
            raise RemoteProtocolError(
                f"{self._label}: each message must come once, message {number} was repeated or came too late to check"
            )

    def add(self, number: int) -> None:
        """Take a number; raises `RemoteProtocolError` like `check`."""
        self.check(number)
        if number >= self._next:
            if number > self._next:
                self._gaps.append(range(self._next, number))
                del self._gaps[: -self._most_gaps]
            self._next = number + 1
            return
        at = self._before(number)
        gap = self._gaps[at]
        self._gaps[at : at + 1] = [rest for rest in (range(gap.start, number), range(number + 1, gap.stop)) if rest]
        del self._gaps[: -self._most_gaps]

    def _gap(self, number: int) -> range:
        at = self._before(number)
        return self._gaps[at] if at >= 0 else range(0)

    def _before(self, number: int) -> int:
        """Return the index of the last gap that begins at or before this number, else -1."""
        return bisect_right(self._gaps, number, key=attrgetter("start")) - 1


class Message(msgspec.Struct, frozen=True, kw_only=True, eq=False):
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


class StreamReader:
    """Reads the messages of one stream: decodes and decrypts each one once.

    Attributes:
        received_bytes: bytes of those received so far.
        furthest: the epoch and place of the one that is furthest ahead.
    """

    def __init__(self, *, session: int, stream: int, seal: StreamSeal | None, label: str) -> None:
        """Begin before the first message.

        Args:
            session: the session it belongs to.
            stream: its number there.
            seal: opens its payloads; None if they come in the clear.
            label: the daemon, for errors.
        """
        self._session = session
        self._stream = stream
        self._seal = seal
        self._label = label
        self._numbers = MessageNumbers(label)
        self.received_bytes = 0
        self.furthest = (0, -1)

    def open(self, frame: DataFrame, payload: memoryview) -> Message | None:
        """Return the message, or None if it belongs to an earlier stream of the session.

        Raises:
            RemoteProtocolError: it belongs to another session or to a stream that was not ordered,
                came before, or was changed.
        """
        header = decode_data_header(frame.header, len(payload) - (TAG_BYTES if self._seal is not None else 0))
        if header.session == self._session and header.stream < self._stream:
            return None
        if (header.session, header.stream) != (self._session, self._stream):
            raise RemoteProtocolError(
                f"{self._label}: a message must be of (session, stream) {(self._session, self._stream)}, "
                f"got one of {(header.session, header.stream)}"
            )
        self._numbers.check(header.number)
        if self._seal is not None:
            payload = self._seal.open_here(header.number, frame.header, payload)
        self._numbers.add(header.number)  # only now: a number that the sender did not write must not count
        self.received_bytes += len(payload)
        self.furthest = max(self.furthest, (header.epoch, header.slot))
        return Message(header=header, payload=payload, sizes=header.record_sizes())
