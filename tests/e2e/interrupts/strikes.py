"""Exceptions out of nowhere in the main thread, as a signal's handler raises them.

Covers: one at a random moment, by a timer's signal; one at each place where Python looks for signals, one place after the other.
Does not cover: what is struck (tests.e2e.interrupts.walk).

CPython looks for signals where a function begins, where a call has ended and where a loop goes round, and nowhere else.
"""

import dis
import random
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

__all__ = ["Alarm", "AtMoments", "AtPlaces", "Interrupt"]


class Interrupt(KeyboardInterrupt):
    """As Ctrl-C raises it."""


class Alarm(TimeoutError):  # noqa: N818  # it is none of its own
    """As a user's own handler may: an `Exception`, which code may take for a failure of what it called."""


class _Strikes:
    """What both kinds share.

    Attributes:
        struck: the number of the last one raised; they count from 1.
    """

    def __init__(self, number: signal.Signals) -> None:
        self.struck = 0
        self._vendors: set[int] = set()
        signal.signal(number, self._handle)  # so that it is a signal's handler that raises

    def _handle(self, _: int, frame: FrameType | None) -> None:
        self.struck += 1
        kind = (Interrupt, Alarm)[self.struck % 2]
        while kind is Alarm and frame is not None:
            if "nvidia" in frame.f_code.co_filename:
                self._vendors.add(self.struck)
            frame = frame.f_back
        raise kind(self.struck)

    def lost_in_vendors(self, struck: int) -> bool:
        """Whether it was an `Exception` within code of others, which may drop any."""
        return struck in self._vendors


class AtMoments(_Strikes):
    """One strike for each `arm`, after a random time."""

    def __init__(self, seed: int, longest_s: float) -> None:
        super().__init__(signal.SIGALRM)
        self._draws = random.Random(seed)
        self._longest_s = longest_s
        self._armed = False

    def arm(self) -> None:
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, max(self._draws.random() * self._longest_s, 1e-6))

    def disarm(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            super()._handle(number, frame)


_CALLS = frozenset(code for name, code in dis.opmap.items() if name.startswith(("CALL", "PRECALL")))
_CALL = dis.opmap["CALL"]  # in 3.11 a call is two instructions, with nothing between them
_LOOPS = frozenset(code for name, code in dis.opmap.items() if name.startswith("JUMP_BACKWARD"))


class AtPlaces(_Strikes):
    """One strike for each `arm`, at the first place, then at the second, and so on, in all Python code called meanwhile.

    Attributes:
        passed: how many places were passed since `arm`.
    """

    def __init__(self) -> None:
        super().__init__(signal.SIGUSR1)
        self.passed = 0
        self._wanted = 0
        self._opcodes: dict[CodeType, dict[int, int]] = {}
        self._before: dict[FrameType, int] = {}

    def arm(self, place: int) -> None:
        self._wanted, self.passed = place, 0
        self._before.clear()
        sys.settrace(self._trace)

    def disarm(self) -> None:
        sys.settrace(None)
        self._before.clear()

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename == __file__:
            return None
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._pass(frame)
        elif event == "opcode":
            codes = self._opcodes.get(frame.f_code)
            if codes is None:
                codes = self._opcodes[frame.f_code] = {
                    instruction.offset: instruction.opcode for instruction in dis.get_instructions(frame.f_code)
                }
            now, before = codes.get(frame.f_lasti, -1), self._before.get(frame, -1)
            self._before[frame] = now
            if now in _LOOPS or (before in _CALLS and now != _CALL):
                self._pass(frame)
        elif event == "return":
            self._before.pop(frame, None)
        return self._trace

    def _pass(self, frame: FrameType) -> None:
        self.passed += 1
        if self.passed == self._wanted:
            self._before.clear()
            self._handle(0, frame)
