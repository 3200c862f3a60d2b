"""Answers to a rank that need only what is known here.

Covers: the welcome, the codes of stream and file errors on the wire. Does not cover: when they are
sent (emlio.daemon.control.thread).
"""

import logging
import os
import secrets
import socket
from pathlib import Path

import msgspec

from emlio import __version__
from emlio.daemon.config import DaemonConfig
from emlio.daemon.datasets.served import ServedDataset
from emlio.errors import CorruptRecordError, DatasetError, EmlioError
from emlio.formats.contents import Contents
from emlio.socket_buffers import send_buffer_bytes
from emlio.wire.control import Fault, Welcome
from emlio.wire.limits import MAX_LANES

__all__ = ["Identity", "code_of_files", "fault_of", "not_let_go", "welcome_to"]

_LOG = logging.getLogger("emlio.daemon")
_MISSING_NAMED = 16
_MOST_NAMES_BYTES = 2 << 20
_NUMBER_BYTES = 12

_NO_ROOM = "no-session"
"""After this code a rank calls again by itself: descriptors or memory are used up now, and nothing
is known to be wrong."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a daemon, as sent in the welcome.

    Attributes:
        name: the name for people. Containers may have equal host names and process numbers.
        process: a random number: no other daemon has it, and none that is started here later.
    """

    name: str = msgspec.field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    process: str = msgspec.field(default_factory=lambda: secrets.token_hex(16))


def welcome_to(
    served: ServedDataset,
    config: DaemonConfig,
    *,
    session: int,
    daemon: Identity,
    protection: str,
    data_offset: int,
    generations: list[int],
) -> Welcome:
    """Return the welcome, the first answer of a session.

    Args:
        served: the generation that the session reads.
        config: the daemon's configuration.
        session: the session's number.
        daemon: the daemon.
        protection: the protection of data.
        data_offset: the data port's number minus the control port's.
        generations: the numbers of the dataset's current generations.
    """
    missing, contents = served.dataset.missing, served.dataset.contents
    return Welcome(
        session=session,
        daemon=daemon.name,
        process=daemon.process,
        software=__version__,
        shards=len(served.rows),
        records=served.catalog.records,
        missing=list(missing[:_MISSING_NAMED]),
        missing_count=len(missing),
        heartbeat_timeout_ns=config.heartbeat_timeout,
        send_buffer_bytes=send_buffer_bytes(),
        max_lanes=MAX_LANES,
        data_offset=data_offset,
        protection=protection,
        format=contents.format,
        settings=contents.settings,
        label_names=_names_to_tell(served.name, contents),
        schema={name: (column.kind, column.shape) for name, column in contents.schema.items()},
        generation=served.generation,
        generations=generations,
    )


def _names_to_tell(dataset: str, contents: Contents) -> dict[int, str]:
    """Return the names of classes, none if they are too many for the welcome."""
    size = sum(len(name.encode("utf-8", "replace")) + _NUMBER_BYTES for name in contents.label_names.values())
    if size > _MOST_NAMES_BYTES:
        _LOG.warning(
            "dataset %s: ranks are not told the names of its %d labels: they take more than %d bytes",
            dataset,
            len(contents.label_names),
            _MOST_NAMES_BYTES,
        )
        return {}
    return dict(contents.label_names)


def fault_of(stream: int, error: EmlioError) -> Fault:
    """Return the fault that tells a rank why its stream cannot go on."""
    if isinstance(error, CorruptRecordError):
        return Fault(
            stream=stream,
            code="corrupt-record",
            text=str(error),
            shard=error.shard,
            record=error.record,
            offset=error.offset,
        )
    if isinstance(error, DatasetError):
        return Fault(stream=stream, code=_NO_ROOM if error.passing else "dataset", text=str(error))
    return Fault(stream=stream, code="internal", text=str(error))


def code_of_files(error: EmlioError) -> str:
    """Return the refusal code for a dataset whose files failed their check."""
    return _NO_ROOM if isinstance(error, DatasetError) and error.passing else "dataset-changed"


def not_let_go(path: Path) -> DatasetError:
    """Return the error for a rank that blocks another process from writing to a shard."""
    return DatasetError(
        f"a shard must not change while it is served: another process waits to write to {path}, and this rank did "
        "not receive the records sent from it in time"
    )
