"""One run: a daemon behind a proxy, a mount of its files, readers, faults; and what must hold.

No wrong byte; no error but while a fault explains it; no call that takes longer than the timeouts allow; no process that cannot
be ended; bounded memory and page cache; nothing mounted at the end.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from emlio.files.mount.mounting import mounts_at
from emlio_testing.processes import RankProcess, settles
from tests.e2e.chaos.host import Host
from tests.e2e.chaos.mounts.draw import TIMEOUT_S, Fault, Kind, Reader, Scenario
from tests.e2e.chaos.mounts.known import KnownFiles
from tests.e2e.chaos.mounts.pressure import Group
from tests.e2e.chaos.mounts.records import Excuse, Figures, Reading, RunResult, busy_s, state_of, write_sample

__all__ = ["MountRun"]

_EMLIO: Final = "import sys; from emlio.cli import main; sys.exit(main(sys.argv[1:]))"
_READER: Final = Path(__file__).with_name("reader.py").read_text(encoding="utf-8")
_GRACE_S: Final = 1.0
"""Beyond the timeout, after which a read is given up."""

_END_S: Final = 120.0
_LOOK_S: Final = 0.1
_SELDOM_S: Final = 1.0
_SAMPLE_S: Final = 60.0
_SHORT_S: Final = TIMEOUT_S - 1.5
"""An outage that takes no longer must not be seen by readers."""

_MEMORY: Final = 100 << 20
"""Memory that a mount's process takes for pushes and answers under way, besides that of its beginning."""

_WITHIN: Final = 1.25
_READ_AHEAD: Final = 1 << 20
"""Of the kernel, around what a reader read on demand."""

_LINES: Final = 3
_AWAY: Final = frozenset({errno.EIO})
_GONE: Final = frozenset({errno.EIO, errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.ENODEV})


class MountRun:
    """See the module."""

    def __init__(self, scenario: Scenario, known: KnownFiles, folder: Path, samples: Path | None = None) -> None:
        """See the class; `folder` is made, for its logs; each minute's memory is written to `samples`."""
        self._samples, self._begin, self._sampled = samples, time.monotonic(), 0.0
        self._scenario, self._known, self._folder = scenario, known, folder
        self.troubles: list[str] = []
        self.figures = Figures()
        self._readings: list[Reading] = []
        self._excuses: list[Excuse] = []
        self._is_gone = False
        self._base_bytes = 0
        self._window_bytes = scenario.window_mib << 20
        self.directory = folder / "seen"
        shutil.rmtree(folder, ignore_errors=True)  # of a run of the same seed
        self.directory.mkdir(parents=True)
        self._host = Host(0, known.files, folder, {})
        self._group = Group(f"emlio-chaos-{os.getpid()}-{scenario.seed}")
        self._agent: RankProcess | None = None

    def run(self) -> RunResult:
        """Do it all."""
        begin = time.monotonic()
        try:
            self.begin()
            for fault in self._scenario.faults:
                self.wait(fault.after_s)
                self.inject(fault)
            self.wait(0.5)
            if not any(fault.kind.is_last for fault in self._scenario.faults):
                self.check_all_is_well()
        except Exception as error:  # noqa: BLE001  # it is said, and all must be ended
            self.troubles.append(f"the run itself failed: {error!r}")
        self.end()
        if self.troubles:
            (self._folder / "log.txt").write_text(self._log(), encoding="utf-8")
        else:
            shutil.rmtree(self._folder)
        return RunResult(
            scenario=self._scenario,
            seconds=time.monotonic() - begin,
            figures=self.figures,
            troubles=self.troubles,
        )

    # ---- its processes ------------------------------------------------------------------------------------------------

    @property
    def _mounting(self) -> RankProcess:
        assert self._agent is not None
        return self._agent

    def begin(self) -> None:
        """Start the daemon, the mount and its readers."""
        scenario = self._scenario
        self._host.start()
        if scenario.bytes_per_s:
            self._host.proxy.slow(scenario.bytes_per_s)
        options = ["--timeout", f"{TIMEOUT_S}s", "--window", f"{scenario.window_mib}MiB"]
        options += ["--order", scenario.order] if scenario.order else []
        self._agent = RankProcess(
            *(_EMLIO, "mount", *options, f"emlio://{self._host.peer}/data", str(self.directory)),
            environment={"EMLIO_FILES_SOCKETS": str(self._folder / "sockets")},
        )
        (self._folder / "sockets").mkdir(mode=0o700)
        self._group.add(self._agent.pid)
        if not settles(lambda: bool(self._mounting.output) or not self._mounting.running, _END_S):
            raise TimeoutError("nothing was mounted")
        if not self._agent.output:
            raise TimeoutError(f"emlio mount ended: {self._agent.log}")
        self._base_bytes = psutil.Process(self._agent.pid).memory_info().rss
        for reader in scenario.readers:
            self._read(reader, reader.plan)
        if scenario.is_measured:
            self._read(None, {"way": "census", "files": "all", "seed": 0})

    def _read(self, reader: Reader | None, plan: dict[str, Any]) -> Reading:
        whole = {
            **plan,
            "mount": str(self.directory),
            "truth": str(self._known.files),
            "stop": str(self._folder / "stop"),
            # The kernel asks once more for a page that failed.
            "limit_s": 2 * (TIMEOUT_S + _GRACE_S) + busy_s(),
        }
        process = RankProcess(
            *(_READER, json.dumps(whole)), environment={"EMLIO_FILES_SOCKETS": str(self._folder / "sockets")}
        )
        self._group.add(process.pid)
        self._readings.append(Reading(reader, process))
        return self._readings[-1]

    # ---- looking ------------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Look at everything meanwhile."""
        end = time.monotonic() + seconds
        while True:
            self.look()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _LOOK_S if self._samples is None else _SELDOM_S))

    def look(self) -> None:
        """Look at the mount's process and at what readers said."""
        self._look_at_agent()
        for reading in self._readings:
            lines = reading.process.lines()
            for line in lines[reading.looked :]:
                self._hear(reading, line)
            reading.looked = len(lines)

    def _look_at_agent(self) -> None:
        if self._agent is None or self._is_gone:
            return
        if not self._agent.running:
            self._is_gone = True
            self.troubles.append(f"the mount's process ended by itself: {self._agent.finish(_END_S)}")
            return
        figures, process = self.figures, psutil.Process(self._agent.pid)
        with suppress(psutil.Error):
            memory = process.memory_info().rss
            figures.memory_bytes = max(figures.memory_bytes, memory - self._base_bytes)
            figures.threads = max(figures.threads, process.num_threads())
            figures.descriptors = max(figures.descriptors, process.num_fds())
            if self._samples is not None and time.monotonic() - self._sampled >= _SAMPLE_S:
                self._sampled = time.monotonic()
                daemon = psutil.Process(self._host.process.pid) if self._host.process else None
                minutes = (self._sampled - self._begin) / 60
                write_sample(self._samples, minutes, self.troubles, {"mount": process, "daemon": daemon})

    def _hear(self, reading: Reading, line: dict[str, Any]) -> None:
        figures = self.figures
        if "wrong" in line:
            self.troubles.append(f"wrong bytes: {line}")
        elif "slow_s" in line:
            self.troubles.append(f"a call took {line['slow_s']} s: {line}")
        elif "cached_bytes" in line:
            figures.cached_part = max(figures.cached_part, line["cached_bytes"] / self._window_bytes)
            if line["cached_bytes"] > _WITHIN * self._window_bytes + _READ_AHEAD:
                self.troubles.append(
                    f"{line['cached_bytes']} bytes in the page cache, the window has {self._window_bytes}"
                )
        elif "errno" in line:
            reading.errors.append((line["at"], line["errno"], f"{line['name']} after {line['took_s']} s"))
        elif "end" in line:
            figures.files += line["files"]
            figures.bytes += line["bytes"]
            figures.errors += line["errors"]
            figures.longest_s = max(figures.longest_s, line["longest_s"])

    # ---- faults -------------------------------------------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """Carry a fault out, to its end."""
        host, proxy = self._host, self._host.proxy
        match fault.kind:
            case Kind.NONE:
                self.wait(fault.lasts_s)
            case Kind.READER_KILL:
                for reading in [one for one in self._readings if not one.is_killed][::2]:
                    self._kill(reading)
                    if reading.plan is not None:
                        self._read(reading.plan, reading.plan.plan)
            case Kind.DAEMON_KILL:
                self._away(fault, host.kill, host.start)
            case Kind.LINK_CUT:
                self._away(fault, proxy.drop, self._heal)
            case Kind.LINK_STALL:
                self._away(fault, proxy.stall, self._heal)
            case Kind.LINK_RESET:
                proxy.reset()
            case Kind.LANES_RESET:
                proxy.cut_lanes()
            case Kind.LINK_FLIP:
                proxy.corrupt_after(int(fault.after_s * 1e5))
                self.wait(fault.lasts_s)
            case Kind.PRESSURE:
                self._press(fault.lasts_s)
            case Kind.AGENT_STOP:
                self._mounting.send_signal(signal.SIGSTOP)
                self._away(fault, lambda: None, lambda: self._mounting.send_signal(signal.SIGCONT))
            case _:
                self._inject_last(fault)

    def _inject_last(self, fault: Fault) -> None:
        if fault.kind.ends_mount:
            self._excuses.append(Excuse(_GONE, time.monotonic()))
            self._is_gone = True
        else:
            self._excuses.append(Excuse(_AWAY, time.monotonic()))
        match fault.kind:
            case Kind.AGENT_KILL:
                self._mounting.send_signal(signal.SIGKILL)
            case Kind.AGENT_END:
                self._mounting.send_signal(signal.SIGTERM)
            case Kind.DAEMON_OTHER:
                self._host.kill()
                self._host.data = self._known.others
                self._host.start()
            case Kind.LINK_LOST:
                self._host.proxy.drop()
            case Kind.UNMOUNT_HELPED:
                subprocess.run(["fusermount3", "-u", "-z", self.directory], check=True, timeout=_END_S)
            case _:
                # One by force ends the connection; the mount's process takes away what is in use.
                is_forced = fault.kind is Kind.UNMOUNT_FORCED
                subprocess.run(
                    [*str(fault.kind).split(), self.directory],
                    check=not is_forced,
                    timeout=_END_S,
                    stderr=subprocess.DEVNULL,
                )
        self.wait(fault.lasts_s)

    def _heal(self) -> None:
        self._host.proxy.heal()
        if self._scenario.bytes_per_s:
            self._host.proxy.slow(self._scenario.bytes_per_s)

    def _away(self, fault: Fault, begin: Callable[[], object], end: Callable[[], object]) -> None:
        """Take the daemon away for a while."""
        excuse = Excuse(_AWAY, time.monotonic())
        self._excuses.append(excuse)
        begin()
        self.wait(fault.lasts_s)
        end()
        excuse.until = time.monotonic()
        if excuse.until - excuse.since <= _SHORT_S:
            excuse.numbers = frozenset()

    def _press(self, seconds: float) -> None:
        """Let the kernel forget pages and entries, again and again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._group.press()
            self.wait(0.05)

    def _kill(self, reading: Reading) -> None:
        reading.is_killed = True
        reading.process.send_signal(signal.SIGKILL)
        if not reading.process.ends(_END_S):
            self.troubles.append(f"a reader cannot be killed: {state_of(reading.process.pid)}")

    # ---- what must hold -----------------------------------------------------------------------------------------------

    def check_all_is_well(self) -> None:
        """After faults that pass, all files can be read again by a process that begins now."""
        self.wait(0.5)
        reading = self._read(
            None,
            {
                "way": "read",
                "files": "all",
                "order": "shuffled",
                "hints": "none",
                "seed": self._scenario.seed,
                "threads": 2,
                "pause_us": 0,
                "rounds": 1,
                "most": 80,
            },
        )
        if not reading.process.ends(_END_S):
            self.troubles.append(f"a reader after the faults did not end: {state_of(reading.process.pid)}")

    def end(self) -> None:
        """Stop all readers, then the mount, then the daemon."""
        (self._folder / "stop").touch()
        until = time.monotonic() + 2 * (TIMEOUT_S + _GRACE_S + busy_s())
        for reading in self._readings:
            if not reading.is_killed and not reading.process.ends(max(until - time.monotonic(), 0.1)):
                self.troubles.append(f"a reader did not stop: {reading.plan} {state_of(reading.process.pid)}")
                self._kill(reading)
        self.look()
        if self._agent is not None:
            self._end_agent(self._agent)
        for reading in self._readings:
            if reading.process.ends(0.1):
                self._judge(reading, reading.process.finish(_END_S))
        self._host.close()
        self.troubles += self._host.troubles
        self._group.close()
        if self.figures.memory_bytes > _WITHIN * _MEMORY:
            self.troubles.append(
                f"the mount's process took {self.figures.memory_bytes >> 20} MiB more than at its beginning"
            )

    def _end_agent(self, agent: RankProcess) -> None:
        last = {fault.kind for fault in self._scenario.faults if fault.kind.is_last}
        agent.send_signal(signal.SIGCONT)
        if not last & set(Kind) - {Kind.DAEMON_OTHER, Kind.LINK_LOST}:
            agent.send_signal(signal.SIGTERM)
        if not agent.ends(_END_S):
            self.troubles.append(f"the mount's process did not end: {state_of(agent.pid)}")
            agent.send_signal(signal.SIGKILL)
            subprocess.run(["umount", "-f", "-l", self.directory], check=False, timeout=_END_S)
        status = agent.finish(_END_S)
        expected = -signal.SIGKILL if Kind.AGENT_KILL in last else 0
        if status != expected:
            self.troubles.append(f"the mount's process must end with status {expected}, got {status}")
        if Kind.AGENT_KILL in last:
            done = subprocess.run(
                ["umount", self.directory], check=False, timeout=_END_S, capture_output=True, text=True
            )
            if done.returncode:
                self.troubles.append(f"umount after a kill failed: {done.stderr}")
        if mounts_at(str(self.directory)):
            self.troubles.append("it is still mounted")
            subprocess.run(["umount", "-f", "-l", self.directory], check=False, timeout=_END_S)
        lines = [line for line in agent.log.splitlines() if line]
        self.figures.log_lines = len(lines)
        if "Traceback" in agent.log:
            self.troubles.append("the mount's process wrote a traceback")
        # Each attempt to connect is said besides, as long as files are read while no daemon is there.
        attempts = (time.monotonic() - self._begin) / TIMEOUT_S
        if len(lines) > _LINES * (1 + len(self._scenario.faults)) + attempts:
            self.troubles.append(f"the mount's process wrote {len(lines)} lines")

    def _judge(self, reading: Reading, status: int) -> None:
        excuses = self._excuses
        wild = [one for one in reading.errors if not any(excuse.covers(one[1], one[0]) for excuse in excuses)]
        for at, number, what in wild[:_LINES]:
            name = errno.errorcode.get(number, str(number))
            self.troubles.append(f"{name} without a reason, {len(wild)} in all: {what}, at {at:.2f}, excuses {excuses}")
        allowed = {0}
        if reading.is_killed:
            allowed = {-signal.SIGKILL}
        elif any(excuse.numbers for excuse in excuses):
            allowed |= {-signal.SIGBUS}  # of a mapping whose page cannot be read
        if status not in allowed:
            self.troubles.append(f"a reader ended with status {status}: {reading.process.log[-2000:]}")

    def _log(self) -> str:
        parts = [self._scenario.words, *self.troubles]
        if self._agent is not None:
            parts += ["--- mount", self._agent.log]
        for reading in self._readings:
            parts += [f"--- reader {reading.plan}", reading.process.log, *reading.process.output[-200:]]
        for log in self._host.logs:
            parts += ["--- daemon", log]
        return "\n".join(parts)
