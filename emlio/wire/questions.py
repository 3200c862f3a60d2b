"""Control messages with questions and their answers, which change nothing.

Covers: sizes and bytes of records, the energy of a node, the state of a daemon. Does not cover: encoding, the messages that
lead a session (emlio.wire.control), when they may be sent (emlio.session).
"""

from typing import Annotated

import msgspec

from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.kinds import Count, Message, Name, Text
from emlio.wire.limits import (
    MAX_ENERGY_DEVICES,
    MAX_STATUS_DATASETS,
    MAX_STATUS_FAILURES,
    MAX_STATUS_JOBS,
    MAX_STATUS_RANKS,
    NOTE_BYTES_PER_RECORDS,
    READINGS_PER_ENERGY,
    RECORD_BYTES_PER_REPLY,
    RECORDS_PER_REQUEST,
    RECORDS_PER_SIZES,
)
from emlio.wire.status import DatasetStatus, FailureStatus, JobStatus, MemoryStatus, RankStatus

__all__ = [
    "EnergyReply",
    "EnergyRequest",
    "RecordRow",
    "RecordsReply",
    "RecordsRequest",
    "SizesReply",
    "SizesRequest",
    "StatusReply",
    "StatusRequest",
]


class RecordRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record, by its shard and its number there."""

    shard: Name
    record: Count


class SizesRequest(Message, frozen=True, kw_only=True):
    """From the rank: send sizes of a shard's records. Allowed at any time; changes nothing."""

    session: Count
    shard: Name
    first: Count
    count: Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]


class SizesReply(Message, frozen=True, kw_only=True):
    """From the daemon: the sizes of records, from record `first` of a shard on.

    `offset` is where that record begins in the shard's file. `sizes` has the size of each frame,
    packed as little-endian uint32; a frame too long for that, which is never sent, counts as 2^32 -
    1. It ends with the shard, with the count asked for, or with RECORDS_PER_SIZES, whichever comes
    first. If the shard is not held here or has no record `first`, `sizes` is empty and `offset` is
    0.
    """

    shard: Name
    first: Count
    offset: Count
    sizes: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_SIZES)]


class RecordsRequest(Message, frozen=True, kw_only=True):
    """From the rank: send these records, the first one from its byte `offset` on.

    Allowed at any time; changes nothing. At most MOST_RECORD_REQUESTS may be open.
    """

    session: Count
    number: Count
    records: Annotated[list[RecordRow], msgspec.Meta(min_length=1, max_length=RECORDS_PER_REQUEST)]
    offset: Count = 0


class RecordsReply(Message, frozen=True, kw_only=True):
    """From the daemon: the first of the requested records, or a part of the first one.

    `payload` holds them one after the other, as many whole ones as fit RECORD_BYTES_PER_REPLY. If
    the first alone does not fit, or `offset` was not 0, it holds a part of that one and nothing
    else. `sizes` and `crcs` have the whole size and the CRC32C of each, packed as little-endian
    uint32; there are no `crcs` for framed records. `notes` is the block that follows the records of
    a data message. If the first record cannot be sent, `text` says why and the rest is empty.
    """

    number: Count
    sizes: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_REQUEST)] = b""
    crcs: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_REQUEST)] = b""
    payload: Annotated[bytes, msgspec.Meta(max_length=RECORD_BYTES_PER_REPLY)] = b""
    notes: Annotated[bytes, msgspec.Meta(max_length=NOTE_BYTES_PER_RECORDS)] = b""
    code: Name = ""
    text: Text = ""


class EnergyRequest(Message, frozen=True, kw_only=True):
    """From the rank: send the energy that your node used from `from_ns` to `to_ns`.

    The times are of the node's CLOCK_MONOTONIC. Changes nothing. An answer may end before the
    interval does; the next request then continues with the same `recording` from reading `first`
    on. The next request must wait for the answer to this one. Only a daemon whose pongs carry its
    time knows this message.
    """

    session: Count
    from_ns: Count
    to_ns: Count
    recording: Count = 0
    first: Count = 0


class EnergyReply(Message, frozen=True, kw_only=True):
    """From the daemon: the readings of this node's recorder for the interval.

    Includes one reading before the interval and one after it, if they exist. If there are no
    readings, `absent` says why and the rest is empty. `more`: the readings end here for lack of
    room. `live`: the recorder still records, or was killed. `boot` names the boot of the node that
    its clock belongs to.
    """

    absent: Text = ""
    node: Name = ""
    boot: Name = ""
    recording: Count = 0
    interval_ns: Count = 0
    devices: Annotated[list[DeviceRow], msgspec.Meta(max_length=MAX_ENERGY_DEVICES)] = []
    readings: Annotated[list[ReadingRow], msgspec.Meta(max_length=READINGS_PER_ENERGY)] = []
    more: bool = False
    live: bool = False


class StatusRequest(Message, frozen=True, kw_only=True):
    """From any client, without a session: send what you are doing. Changes nothing."""

    nonce: Count


class StatusReply(Message, frozen=True, kw_only=True):
    """From the daemon: what it serves to whom, as far as the client may know it.

    Where there are more datasets, jobs, ranks than a list may have, it has the first ones, and of
    the ranks those that hold up the daemon first; `dataset_count` and so on tell how many there
    are. `failures` are the last ones, the newest first.
    """

    nonce: Count
    daemon: Name
    process: Name
    software: Name
    up_ns: Count
    draining: bool
    lanes: Count
    heartbeat_timeout_ns: Count
    memory: MemoryStatus
    dataset_count: Count
    job_count: Count
    rank_count: Count
    datasets: Annotated[list[DatasetStatus], msgspec.Meta(max_length=MAX_STATUS_DATASETS)]
    jobs: Annotated[list[JobStatus], msgspec.Meta(max_length=MAX_STATUS_JOBS)]
    ranks: Annotated[list[RankStatus], msgspec.Meta(max_length=MAX_STATUS_RANKS)]
    failures: Annotated[list[FailureStatus], msgspec.Meta(max_length=MAX_STATUS_FAILURES)]
