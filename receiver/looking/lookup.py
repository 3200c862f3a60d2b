"""Single records by their global ids: from daemons, and from this host's own disks.

Covers: waiting for daemons, reading what lies here, the checks of records. Does not cover: requests
to daemons (emlio.receiver.engine.record_questions), samples (emlio.receiver.looking.singles).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from emlio.errors import CorruptRecordError, PeerLostError, RemoteProtocolError
from emlio.example.columns import Piece
from emlio.formats.notes import pack_notes
from emlio.planner.catalog import Catalog
from emlio.receiver.engine.questions import DaemonQuestions
from emlio.receiver.engine.record_questions import SoughtRecord
from emlio.receiver.local.shard_reader import LocalShards
from emlio.receiver.machine.message import Message
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.records.sizes import locate_record
from emlio.units import format_duration
from emlio.wire.data import DATA_VERSION, DataHeader

__all__ = ["RecordLookup"]

_AT_ONCE = 1024
"""Records requested at once; their bytes are held twice until they are decoded."""

_GRACE_S = 1.0
"""Daemons may be away for the same timeout. Then that is the error, since it says more."""


class RecordLookup:
    """Finds the records of one dataset. Used by one thread at a time."""

    def __init__(
        self,
        catalog: Catalog,
        questions: DaemonQuestions,
        *,
        timeout_ns: int,
        verify: bool,
        datasets: Sequence[str] = (),
    ) -> None:
        """See the class.

        Args:
            catalog: the dataset.
            questions: requests records from daemons.
            timeout_ns: the longest wait for a part of the records.
            verify: whether records are checked against their CRC32C.
            datasets: the names of the datasets of a mixture; none if there is one dataset.
        """
        self._datasets = datasets
        self._catalog = catalog
        self._questions = questions
        self._timeout_ns = timeout_ns
        self._verify = verify

    def find(self, ids: npt.NDArray[np.int64], epoch: int) -> WholeBatch:
        """Return these records, in this order, as a batch of the epoch.

        Raises:
            CorruptRecordError: a record fails its check.
            DatasetError: a record cannot be read.
            PeerLostError: no daemon answered in time.
        """
        pieces = [self._piece(ids[at : at + _AT_ONCE], at) for at in range(0, len(ids), _AT_ONCE)]
        size_bytes = sum(len(piece.buffer) for piece in pieces)
        return WholeBatch(
            epoch=epoch, step=0, count=len(ids), ids=ids, pieces=pieces, size_bytes=size_bytes, placed=len(ids)
        )

    def _piece(self, ids: npt.NDArray[np.int64], first_slot: int) -> Piece:
        shards, numbers = self._catalog.locate(ids)
        places: list[tuple[int, int]] = list(zip(shards.tolist(), numbers.tolist(), strict=True))
        sought = [
            SoughtRecord(shard=shard, name=self._catalog.shards[shard].name, record=record) for shard, record in places
        ]
        self._ask(sought)
        self._read_here([one for one in sought if one.here])
        message = _message(sought)
        run = message.checked(verify=self._verify)
        if run.faults:
            fault = run.faults[0]
            record = int(ids[fault.position])
            place = locate_record(self._catalog, self._questions.sizes, record, datasets=self._datasets)
            raise CorruptRecordError(
                f"{place.text}: {fault.reason}", shard=place.shard, record=place.record, offset=place.offset
            )
        slots = np.arange(first_slot, first_slot + len(ids), dtype=np.int64)
        return Piece(buffer=message.payload, starts=run.starts, ends=run.ends, slots=slots, notes=run.notes)

    def _ask(self, sought: Sequence[SoughtRecord]) -> None:
        answer = self._questions.records(sought)
        try:
            answer.result(self._timeout_ns / 1e9 + _GRACE_S)
        except TimeoutError:
            missing = next(one for one in sought if not one.here and not one.whole)
            raise PeerLostError(
                f"record {missing.record} of shard {missing.name} did not arrive within "
                f"{format_duration(self._timeout_ns)}. Check that the daemons with this shard are running"
            ) from None
        finally:
            answer.cancel()  # after an interrupt no caller waits for it

    def _read_here(self, sought: Sequence[SoughtRecord]) -> None:
        """Read the records of this host's disks, in the calling thread."""
        for stream, local in self._questions.local.items():
            self._read_from(local, [one for one in sought if one.stream == stream])

    @staticmethod
    def _read_from(local: LocalShards, sought: Sequence[SoughtRecord]) -> None:
        left = list(sought)
        while left:
            found = local.find([(one.name, one.record) for one in left])
            ends = np.cumsum(found.sizes).tolist()
            for place, end in enumerate(ends):
                one = left[place]
                one.data += found.payload[end - int(found.sizes[place]) : end].data
                one.crc = int(found.crcs[place]) if len(found.crcs) else None
                one.whole = True
            for one, note in zip(left, found.split_notes(), strict=False):
                one.notes = note
            left = left[len(ends) :]


def _message(sought: Sequence[SoughtRecord]) -> Message:
    """Return records as one message, which has the bytes that a daemon would send.

    Raises:
        RemoteProtocolError: some have checksums and others have none.
    """
    notes = pack_notes([one.notes for one in sought]) if any(one.notes for one in sought) else b""
    crcs = [one.crc for one in sought if one.crc is not None]
    if crcs and len(crcs) != len(sought):
        raise RemoteProtocolError(
            f"all records of a dataset must come with checksums or none, got {len(crcs)} checksums for {len(sought)}"
        )
    payload = bytearray().join([*(one.data for one in sought), notes])
    header = DataHeader(
        version=DATA_VERSION,
        session=0,
        stream=0,
        number=0,
        epoch=0,
        slot=0,
        count=len(sought),
        ids_crc=0,
        sizes=b"",
        crcs=np.array(crcs, "<u4").tobytes(),
        notes=len(notes),
    )
    sizes = np.array([len(one.data) for one in sought], np.int64)
    return Message(header=header, payload=memoryview(payload), sizes=sizes)
