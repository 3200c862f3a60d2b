"""Telling an exception of a signal handler from an exception of a call.

Covers: handlers written in Python, and Python's own for Ctrl-C; errors caused by their exceptions.
Does not cover: raising them in place of an error (emlio.receiver.threads.interrupts).
"""

import signal
from types import CodeType, FunctionType, MethodType

__all__ = ["interrupt_behind", "is_interrupt"]


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


def _code(handler: object) -> CodeType | None:
    """Return the code of a function, a method, or a callable object."""
    call = getattr(handler, "__call__", None)  # noqa: B004  # its code is wanted, not whether it is there
    function = handler if isinstance(handler, FunctionType | MethodType) else call
    code: object = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
