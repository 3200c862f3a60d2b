"""Cores kept busy by separate processes.

Covers: starting and ending them. Does not cover: one core for a moment
(emlio.energy.sources.liveness.burn).
"""

import subprocess
import sys
from types import TracebackType
from typing import Self

from emlio.errors import ConfigError

__all__ = ["BusyCores"]

_SPIN = "while True: pass"
_END_S = 5.0


class BusyCores:
    """A number of busy-looping processes, for the time of a `with`."""

    def __init__(self, count: int) -> None:
        """Set the number of processes; 0 is allowed."""
        if count < 0:
            raise ConfigError(f"the number of busy cores must be at least 0, got {count}")
        self._count = count
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                arguments = [sys.executable, "-S", "-E", "-c", _SPIN]
                self._processes.append(subprocess.Popen(arguments, stdin=subprocess.DEVNULL))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(_END_S)
        self._processes.clear()
