"""Answers to a rank that are made of what is known here.

Covers: the welcome to a dataset, what an error of a stream is called on the wire. Does not cover: when they are sent
(emlio.daemon.control).
"""

from emlio import __version__
from emlio.daemon.config import DaemonConfig
from emlio.daemon.library import ServedDataset
from emlio.errors import CorruptRecordError, DatasetError, EmlioError
from emlio.socket_buffers import send_buffer_bytes
from emlio.wire.control import Fault, Welcome
from emlio.wire.limits import MAX_LANES

__all__ = ["fault_of", "welcome_to"]

_MISSING_NAMED = 16


def welcome_to(served: ServedDataset, config: DaemonConfig, *, session: int, daemon: str, protection: str) -> Welcome:
    """The first answer of a session."""
    missing = served.dataset.missing
    return Welcome(
        session=session,
        daemon=daemon,
        software=__version__,
        shards=len(served.rows),
        records=served.catalog.records,
        missing=list(missing[:_MISSING_NAMED]),
        missing_count=len(missing),
        heartbeat_timeout_ns=config.heartbeat_timeout,
        send_buffer_bytes=send_buffer_bytes(),
        max_lanes=MAX_LANES,
        protection=protection,
    )


def fault_of(stream: int, error: EmlioError) -> Fault:
    """Why a stream cannot go on."""
    if isinstance(error, CorruptRecordError):
        return Fault(
            stream=stream,
            code="corrupt-record",
            text=str(error),
            shard=error.shard,
            record=error.record,
            offset=error.offset,
        )
    return Fault(stream=stream, code="dataset" if isinstance(error, DatasetError) else "internal", text=str(error))
