"""Single requests to a place with objects: the contract, and the errors."""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Protocol

import msgspec
from typing_extensions import Buffer

__all__ = ["Cause", "Client", "ObjectStatus", "RequestError"]


class Cause(Enum):
    """The kinds of a request's failure.

    PASSING may pass soon. UNREACHED may, too: no connection was made, as the host refuses it or its name is unknown.
    """

    ABSENT = "absent"
    DENIED = "denied"
    PASSING = "passing"
    UNREACHED = "unreached"
    OTHER = "other"


class RequestError(Exception):
    """A request failed.

    Attributes:
        cause: the kind of failure.
        reason: for people, without secrets.
    """

    def __init__(self, cause: Cause, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason


class ObjectStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An object as the server describes it.

    Attributes:
        name: relative to the address.
        size_bytes: its size; -1 if it is not known yet.
        etag: the server's name for its content; empty if it has none.
        modified_s: the time of its last change, in seconds since 1970.
    """

    name: str
    size_bytes: int
    etag: str
    modified_s: int


class Client(Protocol):
    """Single requests to one place. Thread-safe; every call may raise `RequestError`."""

    def list(self) -> Iterator[Sequence[ObjectStatus]]:
        """Yield all objects, some at a time."""
        ...

    def head(self, name: str) -> ObjectStatus:
        """Return an object's status."""
        ...

    def get(self, name: str, start: int, end: int) -> tuple[ObjectStatus, Buffer]:
        """Return bytes [start, end) of an object, and its status when they were read."""
        ...
