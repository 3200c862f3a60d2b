"""A course: daemons, healthy jobs, and everything that watches them, until the time is over.

Covers: starting it all, counting alarms. Does not cover: arguments and printing (tests.e2e.watched.__main__).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from emlio.status.verdict import Bound
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess
from emlio_testing.prometheus import Prometheus
from tests.e2e.watched.ranks import SCRIPT

__all__ = ["WAITS", "Alarm", "Settings", "Watched", "run_course"]

WAITS: Final = 0.05
"""A rank that waits for at least this part of the time by its own clock is held up indeed."""

_RECORDS, _PAYLOAD, _SHARDS = 6000, 16_000, 6
_DAEMONS: Final = 2
_LOOKS_S: Final = 10.0
_HERE: Final = "127.0.0.1"
_COMMAND_S: Final = 60.0
_TOLD_S: Final = 60.0
_WARMING_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The length of a course, its jobs, and who watches them.

    Attributes:
        seconds: the length.
        jobs: the ranks of each job.
        step_s: the length of a training step.
        top_s: how often `emlio top` asks; 0 asks never.
        doctor_s: how often `emlio doctor` looks; 0 never.
        prometheus: whether one scrapes, with the rules as they are.
    """

    seconds: float = 4 * 3600.0
    jobs: tuple[int, ...] = (1, 2)
    step_s: float = 0.1
    top_s: float = 2.0
    doctor_s: float = 300.0
    prometheus: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A complaint of a tool about a healthy job, from the first look that made it to the last.

    Attributes:
        tool, about: which, and of which job or rank.
        said: its words of the first time.
        at_s: since the start.
        lasted_s: until the last look that said so.
        share: the part of the time for which the rank waited by its own clock at the first look, if it is known.
        load: of the machine, over a minute, at the first look.
    """

    tool: str
    about: str
    said: str
    at_s: float
    lasted_s: float = 0.0
    share: float | None = None
    load: float = 0.0


@dataclass(slots=True)
class Watched:
    """Everything that was seen.

    Attributes:
        seconds: how long.
        looks: of each tool.
        alarms: those of all tools.
        top_cpu_s: processor time of `emlio top` after its start, over `seconds`.
        explain_cpu_s: of all calls of explain().
        daemons_cpu_s, ranks_cpu_s: of these processes.
    """

    seconds: float = 0.0
    looks: dict[str, int] = field(default_factory=dict[str, int])
    alarms: list[Alarm] = field(default_factory=list[Alarm])
    top_cpu_s: float = 0.0
    explain_cpu_s: float = 0.0
    daemons_cpu_s: float = 0.0
    ranks_cpu_s: float = 0.0

    def looked(self, tool: str, about: str, said: str | None, at_s: float, share: float | None = None) -> None:
        """Note a look: an alarm if something was said, the same one if the last look said something, too."""
        self.looks[tool] = self.looks.get(tool, 0) + 1
        for number, one in enumerate(self.alarms):
            if said is not None and (one.tool, one.about) == (tool, about) and self._goes_on(one, at_s):
                self.alarms[number] = replace(one, lasted_s=at_s - one.at_s)
                return
        if said is not None:
            self.alarms.append(
                Alarm(tool=tool, about=about, said=said, at_s=at_s, share=share, load=os.getloadavg()[0])
            )

    @staticmethod
    def _goes_on(one: Alarm, at_s: float) -> bool:
        return at_s - (one.at_s + one.lasted_s) < 3 * _LOOKS_S


def run_course(settings: Settings, folder: Path, tell: Callable[[Watched], None] = lambda _: None) -> Watched:
    """Run the jobs under watch for so long, in a folder of their own; `tell` what was seen every minute.

    Raises:
        AssertionError: a daemon or a rank has ended.
    """
    seen = Watched()
    with ExitStack() as stack:
        daemons = list(_daemons(folder, stack))
        address = daemons[0].address("images", *daemons[1:])
        ranks = {
            f"job {job} rank {rank}": stack.enter_context(
                RankProcess(
                    SCRIPT,
                    address,
                    *map(str, (rank, size, settings.step_s, _LOOKS_S)),
                    environment={"EMLIO_JOB": f"job {job}"},
                )
            )
            for job, size in enumerate(settings.jobs)
            for rank in range(size)
        }
        time.sleep(_WARMING_S)  # the first seconds of a job are its start
        watching = _Watching(settings, folder, stack, daemons, ranks)
        processes = (*daemons, *ranks.values())
        began, cpu_s = time.monotonic(), {one: one.cpu_s for one in processes}

        def count() -> None:
            seen.seconds = time.monotonic() - began
            seen.daemons_cpu_s = sum(one.cpu_s - cpu_s[one] for one in daemons)
            seen.ranks_cpu_s = sum(one.cpu_s - cpu_s[one] for one in ranks.values())
            seen.top_cpu_s = watching.top_cpu_s

        while (at_s := time.monotonic() - began) < settings.seconds:
            time.sleep(_LOOKS_S / 5)
            watching.look(seen, at_s)
            if at_s - seen.seconds >= _TOLD_S:
                count()
                tell(seen)
            if not all(one.running for one in processes):
                raise AssertionError(f"{[one.log for one in processes if not one.running]} ended")
        count()
    return seen


def _daemons(folder: Path, stack: ExitStack) -> Iterator[DaemonProcess]:
    make_dataset(folder / "images", records=_RECORDS, shards=_SHARDS, payload=_PAYLOAD)
    for _ in range(_DAEMONS):
        daemon = DaemonProcess({"images": folder / "images"}, "--metrics", f"{_HERE}:0", folder=folder)
        stack.enter_context(daemon)
        daemon.wait_for_log("metrics are served at ")
        yield daemon


class _Watching:
    """All that watches: `emlio top` and Prometheus as processes, `emlio doctor` from time to time."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        stack: ExitStack,
        daemons: Sequence[DaemonProcess],
        ranks: dict[str, RankProcess],
    ) -> None:
        self._settings, self._ranks = settings, ranks
        self._address = daemons[0].address("images", *daemons[1:])
        self._read = dict.fromkeys(ranks, 0)
        self._shares: dict[str, float] = {}
        self._doctored_s = 0.0
        self._top: RankProcess | None = None
        if settings.top_s:
            words = ["top", "--json", "--every", f"{settings.top_s:g}s", *(one.peer for one in daemons)]
            program = f"import sys; from emlio.cli import main; sys.exit(main({words!r}))"
            self._top = stack.enter_context(RankProcess(program))
            self._top.line(0)
            self._top_read, self._top_cpu_s = 0, self._top.cpu_s
        self._prometheus: Prometheus | None = None
        if settings.prometheus:
            targets = [one.log.partition("metrics are served at http://")[2].split()[0] for one in daemons]
            (folder / "prometheus").mkdir()
            self._prometheus = Prometheus(
                folder / "prometheus", [one.removesuffix("/metrics") for one in targets], [], faster=False
            )
            stack.callback(self._prometheus.close)

    @property
    def top_cpu_s(self) -> float:
        """The processor time of `emlio top` so far, without its start."""
        return 0.0 if self._top is None else self._top.cpu_s - self._top_cpu_s

    def look(self, seen: Watched, at_s: float) -> None:
        """Take in what was said since the last look."""
        for name, rank in self._ranks.items():
            lines = rank.output[self._read[name] :]
            self._read[name] += len(lines)
            for told in map(json.loads, lines):
                self._shares[name] = told["share"]
                seen.explain_cpu_s += told["cpu_s"]
                said = None if told["bound"] == Bound.LOOP.name else told["told"]
                seen.looked("explain", name, said, at_s, told["share"])
        if self._top is not None:
            lines = self._top.output[self._top_read :]
            self._top_read += len(lines)
            for told in map(json.loads, lines):
                for job in told["jobs"]:
                    blame = job["blame"]
                    said = None if blame["stage"] == Bound.LOOP.value else json.dumps(blame)
                    waits = [self._shares.get(f"{job['name']} rank {one['rank']}") for one in job["ranks"]]
                    share = max((one for one in waits if one is not None), default=None)
                    seen.looked("top", job["name"], said, at_s, share)
        if self._prometheus is not None:
            firing = self._prometheus.firing()
            seen.looked("alerts", "", ", ".join(sorted(firing)) if firing else None, at_s)
        if self._settings.doctor_s and at_s - self._doctored_s >= self._settings.doctor_s:
            self._doctored_s = at_s
            self._doctor(seen, at_s)

    def _doctor(self, seen: Watched, at_s: float) -> None:
        program = (
            f"import sys; from emlio.cli import main; sys.exit(main({['doctor', self._address, '--over', '0s']!r}))"
        )
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
        failed = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("FAIL")]
        said = "; ".join(failed) or done.stderr or "it failed" if done.returncode else None
        seen.looked("doctor", "", said, at_s)
