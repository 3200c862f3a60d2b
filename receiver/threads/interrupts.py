"""Raising a signal handler's exception in place of an error that it caused.

Covers: calls of the user's thread. Does not cover: telling such exceptions from others
(emlio.interrupts).
"""

import logging
import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from emlio.errors import EmlioError, LocalProtocolError
from emlio.interrupts import interrupt_behind

__all__ = ["raises_interrupts", "shorten_trace"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


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


def raises_interrupts(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have a function raise the interrupt itself in place of an error of ours that it caused.

    Other errors of ours get a short traceback. A handler may raise an `OSError`, such as
    `TimeoutError`, in code that takes it for an unreadable file.
    """

    @wraps(function)
    def call(*args: _P.args, **options: _P.kwargs) -> _T:
        try:
            return function(*args, **options)
        except EmlioError as error:
            interrupt = interrupt_behind(error)
            if interrupt is None:
                shorten_trace(error)
                raise
            raise interrupt from None
        except KeyboardInterrupt as interrupt:
            shorten_trace(interrupt)
            del args, options  # this frame stays in the traceback
            raise

    return call
