"""The perf program as an independent measurement: the output of `perf stat` for the same time.

Covers: running it, parsing its output. Does not cover: recording. EMLIO reads the kernel's counters
itself (emlio.energy.sources.perf), since a separate program costs time and drifts from its own
schedule.
"""

import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from emlio.errors import ConfigError

__all__ = ["PerfStat", "StatLine", "parse_stat", "total_joules"]

_END_S = 10.0
_UNITS = {"Joules": 1.0}
_COUNT = re.compile(r"[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatLine:
    """One event in one interval.

    Attributes:
        at_s: the end of the interval, since perf began.
        event: its name in perf.
        joules: the count; None where perf did not or could not count.
    """

    at_s: float
    event: str
    joules: float | None


def parse_stat(text: str) -> tuple[StatLine, ...]:
    """Parse the lines of `perf stat -I MS -x,`; comments and other units are left out.

    Raises:
        ConfigError: a line does not have perf's format.
    """
    lines: list[StatLine] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 4 or not _COUNT.fullmatch(fields[0]):
            raise ConfigError(f"perf stat must write time, count, unit and event, got {line[:120]!r}")
        at, count, unit, event = fields[:4]
        if count.startswith("<"):
            lines.append(StatLine(at_s=float(at), event=event, joules=None))
        elif unit in _UNITS and _COUNT.fullmatch(count):
            lines.append(StatLine(at_s=float(at), event=event, joules=float(count) * _UNITS[unit]))
    return tuple(lines)


def total_joules(lines: tuple[StatLine, ...], event: str) -> float | None:
    """Return the sum of an event; None if an interval was not counted, or there was none."""
    counts = [line.joules for line in lines if line.event == event]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


class PerfStat:
    """`perf stat` of the whole machine, for the time of a `with`."""

    def __init__(self, events: tuple[str, ...], *, interval_ms: int = 100) -> None:
        """Prepare to count events such as "power/energy-pkg/".

        Raises:
            ConfigError: the program is not installed.
        """
        program = shutil.which("perf")
        if program is None:
            raise ConfigError("the program perf is not installed")
        self._arguments = [program, "stat", "-a", "-x,", "-I", str(interval_ms), "-e", ",".join(events)]
        self._process: subprocess.Popen[str] | None = None
        self.lines: tuple[StatLine, ...] = ()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT)  # perf then writes the last interval
        try:
            _, said = process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        if kind is None:
            self.lines = self._parsed(said)

    def _parsed(self, said: str) -> tuple[StatLine, ...]:
        words = f"{' '.join(self._arguments)} failed: {' '.join(said.split())[:200] or 'no output'}"
        try:
            lines = parse_stat(said)
        except ConfigError as error:
            raise ConfigError(words) from error
        if not lines:
            raise ConfigError(words)
        return lines
