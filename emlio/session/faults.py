"""The rank's errors for the fault codes that a daemon sends.

Covers: the error of each code. Does not cover: handling it (emlio.receiver.machine.daemon_pool).
"""

from emlio.errors import CorruptRecordError, DatasetError, EmlioError, RefusedError
from emlio.wire.control import Fault

__all__ = ["error_of"]


def error_of(fault: Fault, peer: str) -> EmlioError:
    """Return the error that the daemon at `peer` reported."""
    text = f"the daemon at {peer} cannot continue: {fault.text}"
    if fault.code == "corrupt-record":
        return CorruptRecordError(text, shard=fault.shard, record=fault.record, offset=fault.offset)
    if fault.code == "dataset":
        return DatasetError(text)
    return RefusedError(text, code=fault.code)
