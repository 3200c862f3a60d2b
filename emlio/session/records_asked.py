"""A rank's open requests for single records.

Covers: how many are in flight, matching answers to requests, checking that an answer fits. Does not
cover: when a request is allowed (emlio.session.rank), the checksums of records
(emlio.receiver.looking.lookup).
"""

from collections.abc import Sequence

import numpy as np

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.instructions import RecordsCame, Send
from emlio.wire.control import RecordRow, RecordsReply, RecordsRequest
from emlio.wire.limits import MOST_RECORD_REQUESTS, RECORDS_PER_REQUEST

__all__ = ["RecordsAsked"]


class RecordsAsked:
    """The open requests for records of one session."""

    def __init__(self) -> None:
        self._open: dict[int, RecordsRequest] = {}

    @property
    def takes_more(self) -> bool:
        """Return whether another request may be sent."""
        return len(self._open) < MOST_RECORD_REQUESTS

    def ask(self, session: int, number: int, records: Sequence[RecordRow], offset: int) -> Send:
        """Return the message of a new request.

        Raises:
            LocalProtocolError: it is not valid, or too many are open.
        """
        if not self.takes_more or number in self._open:
            raise LocalProtocolError(
                f"at most {MOST_RECORD_REQUESTS} requests for records may be open, each with its own number, got "
                f"number {number} beside {sorted(self._open)}"
            )
        if not 1 <= len(records) <= RECORDS_PER_REQUEST or (offset and len(records) > 1) or offset < 0:
            raise LocalProtocolError(
                f"records must be requested 1 to {RECORDS_PER_REQUEST} at once, and alone from a byte above 0, got "
                f"{len(records)} records from byte {offset}"
            )
        request = RecordsRequest(session=session, number=number, records=list(records), offset=offset)
        self._open[number] = request
        return Send(message=request)

    def answered(self, reply: RecordsReply) -> RecordsCame:
        """Return the answer, which must fit an open request."""
        request = self._open.pop(reply.number, None)
        if request is None:
            raise RemoteProtocolError(
                f"records must only be sent on request, got an answer to request {reply.number}, which is not open"
            )
        fault = _misfit(request, reply)
        if fault is not None:
            raise RemoteProtocolError(f"an answer to a request for {len(request.records)} records must {fault}")
        return RecordsCame(reply=reply)


def _misfit(request: RecordsRequest, reply: RecordsReply) -> str | None:
    """Return the rule that an answer breaks; None if it fits its request."""
    if reply.text:
        return "hold no records beside an error" if reply.sizes or reply.payload else None
    sizes: list[int] = np.frombuffer(reply.sizes[: len(reply.sizes) // 4 * 4], "<u4").tolist()
    if len(reply.sizes) % 4 or not 1 <= len(sizes) <= len(request.records):
        return f"have sizes of 4 bytes each for 1 record or more, and no others, got {len(reply.sizes)} bytes"
    if reply.crcs and len(reply.crcs) != len(reply.sizes):
        return f"have as many checksums as sizes or none, got {len(reply.crcs)} bytes for {len(reply.sizes)}"
    got = len(reply.payload)
    if len(sizes) == 1:
        left = sizes[0] - request.offset
        # A part must bring something, or the rest would be requested for ever.
        if 0 < got <= left or got == left:
            return None
        return f"hold 1 to {left} bytes of the rest of its record, got {got}"
    if got != sum(sizes):
        return f"hold its {len(sizes)} records of {sum(sizes)} bytes, got {got}"
    return None
