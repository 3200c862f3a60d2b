"""Questions to a link's process: SIGUSR1 asks for the counts, SIGUSR2 for the bytes held.

Covers: asking and answering. Does not cover: counting (emlio_bench.link.kinds).
"""

import os
import signal
from collections.abc import Callable

from emlio_bench.link.process.channel import LinkCounts
from emlio_bench.link.shaping.held import Held
from emlio_bench.processes.child import Child, say

__all__ = ["ANSWER_S", "answer", "ask_counts", "ask_held"]

ANSWER_S = 30.0
"""The longest time that a link's process may take for an answer."""


def ask_counts(process: Child) -> LinkCounts:
    """Return the counts of the traffic so far."""
    os.kill(process.pid, signal.SIGUSR1)
    return process.hear(LinkCounts, ANSWER_S)


def ask_held(process: Child) -> Held:
    """Return the bytes held since the previous call. The first call starts the recording."""
    os.kill(process.pid, signal.SIGUSR2)
    return process.hear(Held, ANSWER_S)


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
