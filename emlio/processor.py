"""What this machine's processor can do by itself.

Covers: instructions for AES. Linux only. Does not cover: how fast that is.
"""

from functools import cache
from pathlib import Path

__all__ = ["has_aes"]

_CPUINFO = Path("/proc/cpuinfo")
_FLAGS = ("flags", "Features")
"""What the line is called on x86 and on ARM."""


@cache
def has_aes(cpuinfo: Path = _CPUINFO) -> bool:
    """Whether it has instructions for AES; not, where that cannot be found out."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = [words.split() for name, _, words in (line.partition(":") for line in lines) if name.strip() in _FLAGS]
    return bool(flags) and all("aes" in words for words in flags)
