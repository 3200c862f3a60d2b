"""Raising a signal handler's exception in place of an error that it caused.

Covers: calls of the user's thread. Does not cover: telling such exceptions from others
(emlio.interrupts).
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from emlio.errors import EmlioError
from emlio.interrupts import interrupt_behind
from emlio.receiver.threads.short_traces import shorten_trace

__all__ = ["raises_interrupts"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
