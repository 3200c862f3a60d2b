"""A node's use besides energy: processor time, network bytes, memory."""

import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from emlio.energy.sources.cpu_time import read_cpu_time
from emlio.errors import ConfigError

__all__ = ["NodeUse", "NodeWatch", "counted_interfaces"]

_MEMORY = re.compile(rb"^MemTotal:\s*(\d+) kB$.*^MemAvailable:\s*(\d+) kB$", re.MULTILINE | re.DOTALL)
_MEMORY_BYTES = 4096
_COUNTER_BYTES = 32
_LOOPBACK = "772"
"""The kernel's number for interfaces of the loopback kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """A node's use since boot, with the fields of `emlio.energy.values.reading.Reading`.

    None is a value that could not be read.
    """

    cpu_busy_ns: int | None
    cpu_steal_ns: int | None
    cpu_total_ns: int | None
    net_rx_bytes: int | None
    net_tx_bytes: int | None
    memory_bytes: int | None


class NodeWatch:
    """A repeated reader of a node's use. One thread owns it."""

    def __init__(self, *, proc: Path, sysfs: Path, ticks_per_s: int | None = None) -> None:
        """Open the files.

        Args:
            proc: such as /proc.
            sysfs: such as /sys.
            ticks_per_s: of the times in proc; None asks the system.
        """
        self._proc = proc
        self._tick_ns = 1_000_000_000 // (ticks_per_s or os.sysconf("SC_CLK_TCK"))
        with ExitStack() as stack:
            self._memory = _opened(stack, [proc / "meminfo"])
            statistics = [sysfs / "class/net" / name / "statistics" for name in counted_interfaces(sysfs)]
            self._received = _opened(stack, [folder / "rx_bytes" for folder in statistics])
            self._sent = _opened(stack, [folder / "tx_bytes" for folder in statistics])
            self._files = stack.pop_all()

    def read(self) -> NodeUse:
        """Return the current use."""
        try:
            time = read_cpu_time(self._proc)
        except (OSError, ConfigError):
            time = None
        return NodeUse(
            cpu_busy_ns=None if time is None else time.busy * self._tick_ns,
            cpu_steal_ns=None if time is None else time.steal * self._tick_ns,
            cpu_total_ns=None if time is None else time.total * self._tick_ns,
            net_rx_bytes=_sum(self._received),
            net_tx_bytes=_sum(self._sent),
            memory_bytes=self._memory_in_use(),
        )

    def _memory_in_use(self) -> int | None:
        try:
            found = _MEMORY.search(b"".join(os.pread(file, _MEMORY_BYTES, 0) for file in self._memory))
        except OSError:
            return None
        return None if found is None else (int(found[1]) - int(found[2])) * 1024

    def close(self) -> None:
        """Close the files. Closing again does nothing."""
        self._files.close()


def counted_interfaces(sysfs: Path) -> tuple[str, ...]:
    """Return the network interfaces to count, so that each of the node's bytes is counted once.

    These are the interfaces with hardware behind them. Where there are none, as in a container,
    they are all but those that lead to the node itself or are made of others.
    """
    try:
        names = sorted(path.name for path in (sysfs / "class/net").iterdir())
    except OSError:
        return ()
    folders = {name: sysfs / "class/net" / name for name in names}
    real = tuple(name for name, folder in folders.items() if (folder / "device").exists())
    return real or tuple(name for name, folder in folders.items() if _leads_out(name, folder))


def _leads_out(name: str, folder: Path) -> bool:
    try:
        kind = (folder / "type").read_text(encoding="ascii").strip()
    except OSError:
        return False  # not an interface, but a file such as bonding_masters
    made_of_others = any((folder / mark).exists() for mark in ("bridge", "bonding"))
    return kind != _LOOPBACK and not made_of_others and not name.startswith(("ifb", "dummy"))


def _opened(stack: ExitStack, paths: Iterable[Path]) -> list[int]:
    """Open the files; return none if one is missing, since a part would be taken for the whole."""
    files: list[int] = []
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return []
        stack.callback(os.close, file)
        files.append(file)
    return files


def _sum(files: list[int]) -> int | None:
    if not files:
        return None
    try:
        return sum(int(os.pread(file, _COUNTER_BYTES, 0)) for file in files)
    except (OSError, ValueError):
        return None  # an interface went away; the sum of the others would be too low
