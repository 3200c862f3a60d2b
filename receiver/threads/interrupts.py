"""Telling an exception of a signal handler from an exception of a call.

Covers: handlers written in Python, and Python's own for Ctrl-C; errors caused by their exceptions.
Does not cover: the reaction to them.
"""

import signal
from collections.abc import Callable
from functools import wraps
from types import CodeType, FunctionType, MethodType
from typing import ParamSpec, TypeVar

from emlio.errors import EmlioError
from emlio.receiver.threads.short_traces import shorten_trace

__all__ = ["interrupt_behind", "is_interrupt", "raises_interrupts"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception came from a signal handler.

    It then says nothing about the work that it interrupted, and belongs to the user. A handler may
    raise any exception, such as `TimeoutError` for an alarm; then the handler is in its traceback.
    """
    if not isinstance(error, Exception):
        return True
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def interrupt_behind(error: BaseException) -> BaseException | None:
    """Return the interrupt that an error is, or that caused it; None if there is none."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        if is_interrupt(found):
            return found
        seen.add(id(found))
        found = found.__cause__ or found.__context__
    return None


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

    return call


def _code(handler: object) -> CodeType | None:
    """Return the code of a function, a method, or a callable object."""
    call = getattr(handler, "__call__", None)  # noqa: B004  # its code is wanted, not whether it is there
    function = handler if isinstance(handler, FunctionType | MethodType) else call
    code: object = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
