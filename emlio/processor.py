"""Features of this machine's processor.

Covers: instructions for AES. Linux only. Does not cover: their speed.
"""

from functools import cache
from pathlib import Path

from emlio.interrupts import is_interrupt

__all__ = ["has_aes"]

_CPUINFO = Path("/proc/cpuinfo")
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
