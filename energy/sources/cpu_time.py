"""Processor time from /proc/stat; number and name of processors, and memory size.

The root of proc is an argument.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from emlio.errors import ConfigError

__all__ = ["CpuTime", "ProcessorFacts", "is_virtual", "read_cpu_time", "read_facts"]

_FIELDS = 8
"""user, nice, system, idle, iowait, irq, softirq, steal. Time of guests is contained in user and
nice.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """Ticks since boot, of all processors together.

    Attributes:
        busy: computing.
        idle: without work, or waiting for a disk.
        steal: with work, while the host ran other guests.
    """

    busy: int
    idle: int
    steal: int

    @property
    def total(self) -> int:
        """The sum of all ticks."""
        return self.busy + self.idle + self.steal


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorFacts:
    """The machine's properties that an estimate uses.

    Attributes:
        name: as reported by the processor; empty where it reports none.
        cores: hardware threads that the kernel uses.
        memory_bytes: total memory according to the kernel.
    """

    name: str
    cores: int
    memory_bytes: int


def read_cpu_time(proc: Path) -> CpuTime:
    """Read the ticks.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it does not have Linux's format.
    """
    with (proc / "stat").open(encoding="ascii") as file:
        words = file.readline().split()
    if len(words) <= _FIELDS or words[0] != "cpu" or not all(word.isdigit() for word in words[1 : _FIELDS + 1]):
        raise ConfigError(f"{proc / 'stat'} must begin with the ticks of all processors, got {' '.join(words)[:80]!r}")
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, words[1 : _FIELDS + 1])
    return CpuTime(busy=user + nice + system + irq + softirq, idle=idle + iowait, steal=steal)


def read_facts(proc: Path) -> ProcessorFacts:
    """Read the machine's properties.

    Raises:
        ConfigError: this is not Linux's proc.
    """
    try:
        stat, memory = _text(proc / "stat"), _text(proc / "meminfo")
    except OSError as error:
        raise ConfigError(f"{proc} must be a proc file system of Linux: {error}") from error
    cores = len(re.findall(r"^cpu\d+ ", stat, re.MULTILINE))
    total = re.search(r"^MemTotal:\s*(\d+) kB$", memory, re.MULTILINE)
    if not cores or total is None:
        raise ConfigError(f"{proc} must have the number of processors and the size of memory, it does not")
    name = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(proc), re.MULTILINE)
    return ProcessorFacts(name=name[1].strip() if name else "", cores=cores, memory_bytes=int(total[1]) * 1024)


def is_virtual(proc: Path) -> bool:
    """Return whether the processor reports a hypervisor. ARM processors do not report one."""
    flags = re.search(r"^flags\s*:(.*)$", _cpuinfo(proc), re.MULTILINE)
    return flags is not None and "hypervisor" in flags[1].split()


def _cpuinfo(proc: Path) -> str:
    try:
        return _text(proc / "cpuinfo")
    except OSError:
        return ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
