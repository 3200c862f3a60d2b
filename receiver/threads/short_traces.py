"""Short tracebacks for errors that tell the user everything in their message.

Covers: which errors lose the loader's own frames, and a copy of these in the log; interrupts, whose
frames lose their variables. Does not cover:
causes, which keep theirs.
"""

import logging
import traceback

from emlio.errors import EmlioError, LocalProtocolError

__all__ = ["shorten_trace"]

_LOG = logging.getLogger("emlio.receiver")
_OWN = __name__.partition(".")[0]


def shorten_trace(error: BaseException) -> None:
    """Drop the frames of an error that is about to reach the user; log them at DEBUG level first.

    An error keeps its frames if it may be a defect of this package, or if other code is among them,
    such as a user's transform.

    An interrupt keeps its frames without their variables: a notebook keeps the last error, and with
    it would keep a loader alive that a cell which is run again has replaced.
    """
    if isinstance(error, KeyboardInterrupt):
        traceback.clear_frames(error.__traceback__)
        return
    if not isinstance(error, EmlioError) or isinstance(error, LocalProtocolError):
        return
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] != _OWN:
            return
        trace = trace.tb_next
    _LOG.debug("raised to the user: %s", error, exc_info=error)
    error.__traceback__ = None
