"""What a daemon's word that it cannot go on means on the rank's side.

Covers: the error of each code. Does not cover: what is done about it (emlio.receiver.crew).
"""

from emlio.errors import CorruptRecordError, DatasetError, EmlioError, RefusedError
from emlio.wire.control import Fault

__all__ = ["error_of"]


def error_of(fault: Fault, peer: str) -> EmlioError:
    """The error that a daemon at `peer` speaks of."""
    text = f"the daemon at {peer} cannot go on: {fault.text}"
    if fault.code == "corrupt-record":
        return CorruptRecordError(text, shard=fault.shard, record=fault.record, offset=fault.offset)
    if fault.code == "dataset":
        return DatasetError(text)
    return RefusedError(text, code=fault.code)
