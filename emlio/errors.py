"""The exceptions that EMLIO raises on purpose; the type tells who can fix the cause.

    EmlioError
    ├── ConfigError              the caller: an invalid argument, flag or setting
    │   └── RecordIndexError     no record has this number; also an IndexError
    ├── DatasetError             the data: an invalid directory, shard, index or mapping
    │   └── CorruptRecordError   one record cannot be used; has shard, record and offset
    ├── FileError                the system did not read or write a file; also an OSError, with path and offset
    ├── PlanError                two sides, or a saved state and a dataset, have different plans
    ├── ProtocolError            the rules of the protocol were broken
    │   ├── LocalProtocolError   this side was about to break them (a defect of EMLIO)
    │   └── RemoteProtocolError  the peer broke them
    ├── RefusedError             the peer understood and refused; `code` has the reason
    ├── TransportError           a socket cannot be made or used
    │   ├── PeerLostError        the peer did not answer, or stopped answering, within the time allowed
    │   └── ClusterError         a Ray cluster cannot be reached, or did not do what it was given
    └── ClosedError              the object was closed, or belongs to another process (a fork)

A message says what must hold, what came, and where. Facts that a program may need are attributes.

Does not cover: wording, which belongs to the code that raises.
"""

__all__ = [
    "ClosedError",
    "ClusterError",
    "ConfigError",
    "CorruptRecordError",
    "DatasetError",
    "EmlioError",
    "FileError",
    "LocalProtocolError",
    "PeerLostError",
    "PlanError",
    "ProtocolError",
    "RecordIndexError",
    "RefusedError",
    "RemoteProtocolError",
    "TransportError",
]


class EmlioError(Exception):
    """The base class: catch this to catch every exception that EMLIO raises on purpose."""


class ConfigError(EmlioError, ValueError):
    """A value given by the caller cannot be used."""


class RecordIndexError(ConfigError, IndexError):
    """No record has the number that the caller gave."""


class DatasetError(EmlioError):
    """A dataset, or one of its files, is not as it must be.

    Attributes:
        passing: whether the cause is temporary: the system had no descriptor or memory left to look
            at the dataset, and nothing is known to be wrong with it.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class CorruptRecordError(DatasetError):
    """One record cannot be used.

    Its bytes are not those that were written, or cannot be decoded, or it lacks a feature that was
    asked for and that other records have. `Recovery(on_error=...)` treats all of them alike.

    Attributes:
        shard: the name of the shard's file.
        record: the position of the record in the shard, or -1 if it is not known.
        offset: the byte offset of the record in the file.
    """

    def __init__(self, message: str, *, shard: str, record: int, offset: int) -> None:
        super().__init__(message)
        self.shard = shard
        self.record = record
        self.offset = offset


class FileError(EmlioError, OSError):
    """Bytes of a file could not be read or written. As an `OSError` it has `errno` and `filename`.

    Attributes:
        offset: the first byte that was not read or written.
    """

    def __init__(self, message: str, *, errno: int, path: str, offset: int) -> None:
        super().__init__(errno, message, path)
        self.offset = offset

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles are made of what `OSError` does not know of."""
        return _file_error, (*self.args, self.filename, self.offset)

    def __str__(self) -> str:
        return str(self.strerror)


def _file_error(errno: int, message: str, path: str, offset: int) -> FileError:
    return FileError(message, errno=errno, path=path, offset=offset)


class PlanError(EmlioError):
    """Two plans that must be the same differ."""


class ProtocolError(EmlioError):
    """The rules of the protocol were broken; raised only as one of the two subclasses."""


class LocalProtocolError(ProtocolError):
    """This side tried something that its state does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that its state, or the format, does not allow."""


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


class ClusterError(TransportError):
    """A Ray cluster cannot be reached, or did not do what it was given."""


class ClosedError(EmlioError):
    """The object can no longer be used."""
