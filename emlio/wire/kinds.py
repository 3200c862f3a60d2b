"""Bounded value types that several control messages share.

Covers: the types. Does not cover: the messages (emlio.wire.control).
"""

from typing import Annotated

import msgspec

from emlio.wire.limits import MAX_NAME_LENGTH

__all__ = ["Count", "Digest", "Message", "Name", "Named", "Text"]

Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_LENGTH)]
Named = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
Text = Annotated[str, msgspec.Meta(max_length=16384)]
Digest = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=str.lower):
    """A control message; its tag is its lower-case name.

    Classes repeat `frozen` and `kw_only`: msgspec inherits only the first, type checkers neither.
    """
