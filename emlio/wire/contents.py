"""Control messages with sets of records, weights and matches of predicates, all compressed and in parts.

Covers: the messages as frozen values. Does not cover: encoding (emlio.wire.control), cutting and joining parts
(emlio.session.contents).
"""

from typing import Annotated

import msgspec

from emlio.wire.kinds import Count, Digest, Message
from emlio.wire.limits import CONTENT_PART_BYTES, MAX_CONTENT_BYTES, MAX_PREDICATE_CHARACTERS

__all__ = ["ContentPart", "MatchReply", "MatchRequest"]

ContentBytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_CONTENT_BYTES)]
Packed = Annotated[bytes, msgspec.Meta(max_length=CONTENT_PART_BYTES + CONTENT_PART_BYTES // 16)]


class ContentPart(Message, frozen=True, kw_only=True):
    """From the rank: bytes `first` to `first` + `size` of a set of records that its sampling names.

    `data` is these bytes, compressed by zlib. The last part, which ends at byte `total`, completes the offer.
    """

    session: Count
    content: Digest
    first: ContentBytes
    size: Annotated[int, msgspec.Meta(ge=1, le=CONTENT_PART_BYTES)]
    total: ContentBytes
    data: Packed


class MatchRequest(Message, frozen=True, kw_only=True):
    """From the rank: for which of your records does this predicate hold, from byte `first` of the answer on?

    Asked before each offer, as the plan depends on it. Records of one shard may come from several daemons, which must say
    the same of it: digests are enough to compare them.
    """

    session: Count
    predicate: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PREDICATE_CHARACTERS)]
    first: ContentBytes = 0
    digests: bool | msgspec.UnsetType = msgspec.UNSET  # a digest of each shard's bits, in their place


class MatchReply(Message, frozen=True, kw_only=True):
    """From the daemon: bytes `first` to `first` + `size` of `total`, compressed by zlib.

    All bytes together have a bit for each record of the shards that the daemon lists, in that order; or a digest of
    each shard's bits.
    """

    first: ContentBytes
    size: Annotated[int, msgspec.Meta(ge=1, le=CONTENT_PART_BYTES)]
    total: ContentBytes
    data: Packed
