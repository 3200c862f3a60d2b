"""The state of a run, while it is under way and afterwards."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from emlio_testing.processes import RankProcess
from tests.e2e.chaos.mounts.draw import Reader, Scenario

__all__ = ["Excuse", "Figures", "Reading", "RunResult", "busy_s", "state_of", "write_sample"]

_AFTER_S: Final = 3.0
_BUSY_S: Final = 4.0
"""A busy machine may add this to a call, for each process that wants a core."""


@dataclass(slots=True)
class Figures:
    """Counts: the most of each."""

    files: int = 0
    bytes: int = 0
    errors: int = 0
    longest_s: float = 0.0
    memory_bytes: int = 0
    threads: int = 0
    descriptors: int = 0
    cached_part: float = 0.0
    log_lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run."""

    scenario: Scenario
    seconds: float
    figures: Figures
    troubles: Sequence[str]


@dataclass(slots=True)
class Excuse:
    """Errors that readers may see."""

    numbers: frozenset[int]
    since: float
    until: float | None = None

    def covers(self, number: int, at: float) -> bool:
        """Return whether it explains an error then."""
        return number in self.numbers and at >= self.since and (self.until is None or at <= self.until + _AFTER_S)


@dataclass(slots=True)
class Reading:
    """A process that reads, and how many of its lines were looked at."""

    plan: Reader | None
    process: RankProcess
    looked: int = 0
    is_killed: bool = False
    errors: list[tuple[float, int, str]] = field(default_factory=list[tuple[float, int, str]])


def state_of(pid: int) -> str:
    """Return what a process waits for, as far as it can be told."""
    found: list[str] = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        with suppress(OSError):
            state = (task / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
            stack = (task / "stack").read_text(encoding="ascii").split("\n")[:4]
            found.append(f"{task.name} {state} {' '.join(stack)}")
    return f"process {pid}: {'; '.join(found)}"


def busy_s() -> float:
    """Return how long a call may take longer on this machine now."""
    return _BUSY_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def write_sample(
    path: Path, minutes: float, troubles: Sequence[str], processes: Mapping[str, psutil.Process | None]
) -> None:
    """Append a line: resident bytes, threads, descriptors and seconds of processor time of each process."""
    sample: dict[str, Any] = {"minutes": round(minutes, 1), "troubles": list(troubles)}
    for name, process in processes.items():
        if process is not None:
            held = process.memory_info().rss
            sample[name] = [held, process.num_threads(), process.num_fds(), round(sum(process.cpu_times()[:2]), 1)]
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(sample) + "\n")
