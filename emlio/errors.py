"""Every exception EMLIO raises on purpose; the type says who can mend it.

    EmlioError
    ├── ConfigError              the caller: an argument, a flag or a setting cannot be
    ├── DatasetError             the data: a directory, a shard, an index or a mapping is not what it must be
    │   └── CorruptRecordError   one record; says shard, record and offset
    ├── PlanError                two sides, or a saved state and a dataset, speak of different plans
    ├── ProtocolError            the conversation broke its rules
    │   ├── LocalProtocolError   this side was about to break them (a defect of ours)
    │   └── RemoteProtocolError  the peer did
    ├── RefusedError             the peer understood and said no; `code` says why
    ├── TransportError           bytes do not arrive
    │   └── PeerLostError        the peer did not answer, or stopped answering, within the time allowed
    └── ClosedError              the object was closed, or belongs to another process (a fork)

Covers: the tree. Does not cover: wording, which belongs to the place that raises. A message says what must hold, what came,
and where. Facts a program may want are attributes.
"""

__all__ = [
    "ClosedError",
    "ConfigError",
    "CorruptRecordError",
    "DatasetError",
    "EmlioError",
    "LocalProtocolError",
    "PeerLostError",
    "PlanError",
    "ProtocolError",
    "RefusedError",
    "RemoteProtocolError",
    "TransportError",
]


class EmlioError(Exception):
    """The root: catch this to catch everything EMLIO raises on purpose."""


class ConfigError(EmlioError, ValueError):
    """A value given by the caller cannot be used."""


class DatasetError(EmlioError):
    """A dataset, or a file of one, is not what it must be.

    Attributes:
        passing: nothing is known to be wrong with it: the system had no descriptor or memory left to look at it.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class CorruptRecordError(DatasetError):
    """One record's bytes are not those that were written.

    Attributes:
        shard: name of the shard's file.
        record: position of the record in the shard, or -1 where it cannot be told.
        offset: byte offset of the record in the file.
    """

    def __init__(self, message: str, *, shard: str, record: int, offset: int) -> None:
        super().__init__(message)
        self.shard = shard
        self.record = record
        self.offset = offset


class PlanError(EmlioError):
    """Two plans that must be the same are not."""


class ProtocolError(EmlioError):
    """The rules of the conversation were broken; raised only as one of the two subclasses."""


class LocalProtocolError(ProtocolError):
    """This side tried something its state does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something its state, or the format, does not allow."""


class RefusedError(EmlioError):
    """The peer refused.

    Attributes:
        code: a short stable word, for example "unknown-dataset".
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class TransportError(EmlioError):
    """A socket could not be made or used."""


class PeerLostError(TransportError):
    """The peer did not answer within the time allowed."""


class ClosedError(EmlioError):
    """The object can no longer be used."""
