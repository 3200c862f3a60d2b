"""Questions to a link's process: SIGUSR1 asks for the counts, SIGUSR2 for the bytes held.

Covers: asking and answering. Does not cover: counting (emlio_bench.link.kinds).
"""

import os
import signal
from collections.abc import Callable
from typing import TypeVar

from emlio.errors import TransportError
from emlio_bench.link.process.channel import LinkCounts
from emlio_bench.link.shaping.held import Held
from emlio_bench.processes.child import Child, say

__all__ = ["ANSWER_S", "answer", "ask_counts", "ask_held"]

_Answer = TypeVar("_Answer")
ANSWER_S = 30.0
"""The longest time that a link's process may take for an answer."""


def ask_counts(process: Child) -> LinkCounts:
    """Return the counts of the traffic so far."""
    return _ask(process, signal.SIGUSR1, LinkCounts)


def ask_held(process: Child) -> Held:
    """Return the bytes held since the previous call. The first call starts the recording."""
    return _ask(process, signal.SIGUSR2, Held)


def _ask(process: Child, number: signal.Signals, kind: type[_Answer]) -> _Answer:
    if not process.running:
        raise TransportError("a link must be up to be asked, this one has ended")
    os.kill(process.pid, number)
    return process.hear(kind, ANSWER_S)


def answer(signals: int, counts: Callable[[], LinkCounts], held: Callable[[], Held]) -> bool:
    """Answer the questions that have come; return False after SIGTERM.

    Args:
        signals: readable descriptor of `hear_signals`.
        counts: returns the counts.
        held: returns the bytes held.
    """
    told = os.read(signals, 64)
    if signal.SIGTERM in told:
        return False
    for number in told:
        say(counts() if number == signal.SIGUSR1 else held())
    return True
