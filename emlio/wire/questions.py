"""Questions of ranks to daemons and their answers, which change nothing.

Does not cover: who may ask what when (emlio.session.questions), which answer fits (emlio.session.questions).
"""

from typing import Annotated

import msgspec

from emlio.wire.contents import ContentBytes, Packed
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.kinds import Count, Message, Name
from emlio.wire.limits import (
    CONTENT_PART_BYTES,
    MAX_ENERGY_DEVICES,
    MAX_PREDICATE_CHARACTERS,
    MAX_REASON,
    MAX_STATUS_DATASETS,
    MAX_STATUS_FAILURES,
    MAX_STATUS_JOBS,
    MAX_STATUS_RANKS,
    MAX_TREE_ENTRIES,
    NOTE_BYTES_PER_RECORDS,
    RANGE_BYTES_PER_REPLY,
    RANGES_PER_REQUEST,
    READINGS_PER_ENERGY,
    RECORD_BYTES_PER_REPLY,
    RECORDS_PER_REQUEST,
    RECORDS_PER_SIZES,
    TREE_DIGEST_BYTES,
)
from emlio.wire.status import DatasetStatus, FailureStatus, JobStatus, MemoryStatus, RankStatus

__all__ = [
    "FILE_CHANGED",
    "NO_TREE",
    "OTHER_TREE",
    "RANGE_BYTES",
    "Absent",
    "Answer",
    "AskEnergy",
    "AskMatches",
    "AskRanges",
    "AskRecords",
    "AskSizes",
    "AskTree",
    "Energy",
    "Matches",
    "Question",
    "Ranges",
    "RecordRow",
    "Records",
    "Sizes",
    "StatusReply",
    "StatusRequest",
    "Subject",
    "Told",
    "TreePart",
]

RANGE_BYTES = 16
"""Of one range in a question for ranges."""

TreeDigest = Annotated[bytes, msgspec.Meta(max_length=TREE_DIGEST_BYTES)]


class RecordRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record, by its shard and its number there."""

    shard: Name
    record: Count


class _Body(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=str.lower):
    """The subject of a question, or of an answer."""


class AskSizes(_Body, frozen=True, kw_only=True, tag="sizes"):
    """The sizes of `count` records of a shard, from record `first` on. Allowed at any time."""

    shard: Name
    first: Count
    count: Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]


class Sizes(_Body, frozen=True, kw_only=True):
    """The sizes of records, from the requested one on.

    `offset` is where that record begins in the shard's file. `sizes` has the size of each frame,
    packed as little-endian uint32; a frame too long for that, which is never sent, counts as 2^32 -
    1. It ends with the shard, with the count asked for, or with RECORDS_PER_SIZES, whichever comes
    first. If the shard is not held here or has no such record, `sizes` is empty and `offset` is 0.
    """

    offset: Count
    sizes: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_SIZES)]


class AskMatches(_Body, frozen=True, kw_only=True, tag="matches"):
    """The records for which a predicate holds, from byte `first` of the answer on.

    Asked before each offer, as the plan depends on it; one at a time. Records of one shard may come
    from several daemons, which must say the same of it: digests are enough to compare them.
    """

    predicate: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PREDICATE_CHARACTERS)]
    first: ContentBytes = 0
    digests: bool | msgspec.UnsetType = msgspec.UNSET  # a digest of each shard's bits, in their place


class Matches(_Body, frozen=True, kw_only=True):
    """Bytes `first` to `first` + `size` of `total`, compressed by zlib.

    All bytes together have a bit for each record of the shards that the daemon lists, in that order; or a digest of
    each shard's bits.
    """

    first: ContentBytes
    size: Annotated[int, msgspec.Meta(ge=1, le=CONTENT_PART_BYTES)]
    total: ContentBytes
    data: Packed


class AskRecords(_Body, frozen=True, kw_only=True, tag="records"):
    """These records, the first one from its byte `offset` on. Allowed at any time."""

    records: Annotated[list[RecordRow], msgspec.Meta(min_length=1, max_length=RECORDS_PER_REQUEST)]
    offset: Count = 0


class Records(_Body, frozen=True, kw_only=True):
    """The first of the requested records, or a part of the first one.

    `payload` holds them one after the other, as many whole ones as fit RECORD_BYTES_PER_REPLY. If
    the first alone does not fit, or `offset` was not 0, it holds a part of that one and nothing
    else. `sizes` and `crcs` have the whole size and the CRC32C of each, packed as little-endian
    uint32; there are no `crcs` for framed records. `notes` is the block that follows the records of
    a data message.
    """

    sizes: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_REQUEST)]
    crcs: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_REQUEST)] = b""
    payload: Annotated[bytes, msgspec.Meta(max_length=RECORD_BYTES_PER_REPLY)] = b""
    notes: Annotated[bytes, msgspec.Meta(max_length=NOTE_BYTES_PER_RECORDS)] = b""


class AskEnergy(_Body, frozen=True, kw_only=True, tag="energy"):
    """The energy that the node used from `from_ns` to `to_ns` of its CLOCK_MONOTONIC. Allowed at any time.

    An answer may end before the interval does; the next question then continues with the same
    `recording` from reading `first` on.
    """

    from_ns: Count
    to_ns: Count
    recording: Count = 0
    first: Count = 0


class Energy(_Body, frozen=True, kw_only=True):
    """The readings of the node's recorder for the interval.

    Includes one reading before the interval and one after it, if they exist. `more`: the readings
    end here for lack of room. `live`: the recorder still records, or was killed. `boot` names the
    boot of the node that its clock belongs to.
    """

    node: Name
    boot: Name
    recording: Count
    interval_ns: Count
    devices: Annotated[list[DeviceRow], msgspec.Meta(max_length=MAX_ENERGY_DEVICES)]
    readings: Annotated[list[ReadingRow], msgspec.Meta(max_length=READINGS_PER_ENERGY)]
    more: bool = False
    live: bool = False


class AskTree(_Body, frozen=True, kw_only=True, tag="tree"):
    """The entries of the dataset's folder from entry `first` on. Allowed at any time.

    `tree` is the digest of the tree that the first part was of, once that is known.
    """

    tree: TreeDigest = b""
    first: Count = 0


class TreePart(_Body, frozen=True, kw_only=True, tag="tree"):
    """Entries `first` to `first` + `count` of `total`, see `emlio.session.trees`.

    `data` is compressed by zlib, and has `size` bytes before.
    """

    tree: Annotated[bytes, msgspec.Meta(min_length=TREE_DIGEST_BYTES, max_length=TREE_DIGEST_BYTES)]
    first: Count
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_TREE_ENTRIES)]
    total: Annotated[int, msgspec.Meta(ge=1, le=MAX_TREE_ENTRIES)]
    size: Annotated[int, msgspec.Meta(ge=1, le=CONTENT_PART_BYTES)]
    data: Packed


class AskRanges(_Body, frozen=True, kw_only=True, tag="ranges"):
    """These ranges of files of the tree with this digest. Allowed at any time.

    `ranges` has 16 bytes for each: the file's number in the tree, the range's length, 4 bytes each, and where it begins, 8
    bytes, all little-endian. A range has at least one byte, and lies in the file as it is in the tree.
    """

    tree: Annotated[bytes, msgspec.Meta(min_length=TREE_DIGEST_BYTES, max_length=TREE_DIGEST_BYTES)]
    ranges: Annotated[bytes, msgspec.Meta(min_length=RANGE_BYTES, max_length=RANGE_BYTES * RANGES_PER_REQUEST)]


class Ranges(_Body, frozen=True, kw_only=True):
    """The first bytes of the requested ranges, one after the other.

    `payload` ends with the last range, where RANGE_BYTES_PER_REPLY are full, or before a range that cannot be read.
    `crcs` has the CRC32C of what it holds of each range, packed as little-endian uint32.
    """

    crcs: Annotated[bytes, msgspec.Meta(min_length=4, max_length=4 * RANGES_PER_REQUEST)]
    payload: Annotated[memoryview, msgspec.Meta(min_length=1, max_length=RANGE_BYTES_PER_REPLY)]  # of the message


class Absent(_Body, frozen=True, kw_only=True):
    """There are no such records or files, or there is no energy: why. `code` as in a fault, or one of those below."""

    code: Name = ""
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_REASON)]


NO_TREE = "no-tree"
"""The code where the entries of a dataset's folder are not told."""

OTHER_TREE = "other-tree"
"""The code where the folder has another tree than the one that was asked for."""

FILE_CHANGED = "file-changed"
"""The code where the first range cannot be read: its file is not the one in the tree any more, or is not readable."""

Subject = AskSizes | AskMatches | AskRecords | AskEnergy | AskTree | AskRanges
Told = Sizes | Matches | Records | Energy | TreePart | Ranges | Absent


class Question(Message, frozen=True, kw_only=True):
    """From the rank: a question that changes nothing. No other open question of the session has its `number`.

    An answer may have a part only; the rest is then another question. At most MOST_QUESTIONS may be
    open.
    """

    session: Count
    number: Count
    about: Subject


class Answer(Message, frozen=True, kw_only=True):
    """From the daemon: the answer to the open question with this number."""

    number: Count
    told: Told


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
