"""Sets of records and weights as control messages carry them, compressed and in parts.

Does not cover: encoding (emlio.wire.control), cutting and joining parts
(emlio.session.contents).
"""

from typing import Annotated

import msgspec

from emlio.wire.kinds import Count, Digest, Message
from emlio.wire.limits import CONTENT_PART_BYTES, MAX_CONTENT_BYTES

__all__ = ["ContentBytes", "ContentPart", "Packed"]

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
