"""Reads the messages of one stream: decodes and decrypts each one once.

Covers: telling the current stream's messages from those of earlier and foreign streams. Does not
cover: the order on a lane (emlio.receiver.placement.reorder), the records of a message
(emlio.receiver.machine.intake).
"""

from emlio.errors import RemoteProtocolError
from emlio.receiver.machine.message import Message
from emlio.receiver.placement.message_numbers import MessageNumbers
from emlio.wire.data import DataFrame, decode_data_header
from emlio.wire.seal import TAG_BYTES, StreamSeal

__all__ = ["StreamReader"]


class StreamReader:
    """Reads the messages of one stream."""

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
        return Message(header=header, payload=payload, sizes=header.record_sizes())
