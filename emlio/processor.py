"""Features of this machine's processors, and for how long they were idle.

Covers: instructions for AES; idle time. Linux only. Does not cover: their speed.
"""

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from emlio.interrupts import is_interrupt

__all__ = ["ProcessorTimes", "has_aes", "processor_times"]

_CPUINFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
_FIELDS, _IDLE, _WAITING = 8, 3, 4
"""Of a processor's line: the kinds of ticks that no other one contains; those without work, and with a disk to wait for."""
_FLAGS = ("flags", "Features")
"""The name of the line on x86 and on ARM."""


@cache
def has_aes(cpuinfo: Path = _CPUINFO) -> bool:
    """Return whether the processor has instructions for AES; False if that cannot be found out."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        if is_interrupt(error):
            raise
        return False
    flags = [words.split() for name, _, words in (line.partition(":") for line in lines) if name.strip() in _FLAGS]
    return bool(flags) and all("aes" in words for words in flags)


class ProcessorTimes(NamedTuple):
    """The time of the processors that this process may use since the machine started, together, in ticks of the system.

    Attributes:
        idle: without work, or with none but waiting for a disk.
        all: the whole.
    """

    idle: int
    all: int

    def idle_since(self, before: "ProcessorTimes") -> float | None:
        """Return the share that was idle since then; None if that cannot be told."""
        idle, time = self.idle - before.idle, self.all - before.all
        return idle / time if 0 <= idle <= time and time else None


def processor_times(stat: Path = _STAT) -> ProcessorTimes | None:
    """Return the times now; None if they cannot be found out."""
    idle = whole = 0
    try:
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        for line in stat.read_text(encoding="ascii").splitlines():
            name, *words = line.split() or ("",)
            if name in allowed:
                ticks = [*map(int, words[:_FIELDS])]
                idle += ticks[_IDLE] + ticks[_WAITING]
                whole += sum(ticks)
    except (OSError, ValueError, IndexError) as error:
        if is_interrupt(error):
            raise
        return None
    return ProcessorTimes(idle, whole) if whole else None
