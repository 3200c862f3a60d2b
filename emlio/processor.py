"""Features of this machine's processors, and for how long they were idle.

Covers: instructions for AES; idle time. Linux only. Does not cover: their speed.
"""

import os
from functools import cache
from pathlib import Path

from emlio.interrupts import is_interrupt

__all__ = ["has_aes", "idle_time_ns"]

_CPUINFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
_IDLE, _WAITING = 4, 5
"""The places in a line of /proc/stat of the ticks without work, and of those in which only a disk was waited for."""
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


def idle_time_ns(stat: Path = _STAT) -> int | None:
    """Return for how long the processors that this process may use were idle since the machine started, on average.

    None if that cannot be found out.
    """
    allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks: list[int] = []
    try:
        for line in stat.read_text(encoding="ascii").splitlines():
            words = line.split()
            if words and words[0] in allowed:
                ticks.append(int(words[_IDLE]) + int(words[_WAITING]))
    except (OSError, ValueError, IndexError) as error:
        if is_interrupt(error):
            raise
        return None
    return sum(ticks) * 1_000_000_000 // (len(ticks) * os.sysconf("SC_CLK_TCK")) if ticks else None
